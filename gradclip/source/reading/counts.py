"""Counts of passes, processes or examples, by which a program divides gradients: ``p.grad /= accumulation_steps``."""

from __future__ import annotations

import ast
import re

from gradclip.source.reading.degrees import degree
from gradclip.source.reading.program import last
from gradclip.source.reading.values import Constant, Product, Value

__all__ = ["DIVIDED", "divisor", "of_marks"]

DIVIDED = "divided:"  #: the mark of gradients that are divided by a count, with its text
_COUNT = re.compile(
    r"accum|micro|world|replica|worker|passes|(^|_)(num|n|count|number|bs)(_|$)|(batch|chunk|task|rank|sample|step|process|"
    r"shard|rollout|split|episode|grad|agg)(e?s|_size|_count)$|_steps_|(^|_)in_sync",
    re.IGNORECASE,
)
_SIZES = frozenset({"len", "get_world_size", "device_count", "local_device_count", "process_count", "axis_size"})


def divisor(by: Value, node: ast.expr | None, *, divides: bool) -> str:
    """The count by which gradients are divided, as text: of ``g / n``, ``g * (1 / n)``, ``g * (n / m)``; "" if it is none."""
    if node is None or degree(by) != 0:
        return ""
    if not divides and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        if _is_one(node.left):
            return divisor(Value(), node.right, divides=True)
        if divisor(Value(), node.left, divides=True):
            return f"{ast.unparse(node.right)} / {ast.unparse(node.left)}"
    if not divides:  # a name for 1 / n
        inverse = (x for x in by.sides if isinstance(x, tuple) and x[:1] == ("1/",)) if isinstance(by, Product) else ()
        return ast.unparse(node) if any(_COUNT.search(x) for token in inverse for x in _names(token)) else ""
    number = by.value if isinstance(by, Constant) else getattr(node, "value", None)
    is_count = isinstance(number, int) and not isinstance(number, bool) and number > 1
    names = (last(x.func if isinstance(x, ast.Call) else x) for x in ast.walk(node))
    return ast.unparse(node) if is_count or any(x in _SIZES or _COUNT.search(x) for x in names if x) else ""


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _names(token: object) -> list[str]:
    """The names in an identity."""
    return [y for x in token for y in _names(x)] if type(token) is tuple else [str(token)]


def of_marks(marks: frozenset[str]) -> str:
    """The count by which gradients with these marks are divided."""
    return next((x[len(DIVIDED) :] for x in marks if x.startswith(DIVIDED)), "")
