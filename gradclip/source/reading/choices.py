"""Parameters that a program chooses by a test of their names or their shapes, and those that the same test leaves out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gradclip.rounds import Params
from gradclip.rounds.params import Choice
from gradclip.source.reading.program import File, last
from gradclip.source.reading.values import Elements

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["chosen", "is_harmless", "sides"]

_FREEZES = re.compile(r"requires_grad\s*=|requires_grad_\(|freez|peft|lora|adapter|stop_gradient", re.IGNORECASE)
_RECURRENT = re.compile(r"rnn|lstm|gru|recurrent|_hh", re.IGNORECASE)  #: a program may mean to clip these only
_OFF = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})
_WRAPPERS = frozenset({"model", "module", ""})
_SHAPES = frozenset({"ndim", "dim", "shape", "size"})
_NEGATED = {ast.NotIn: ast.In, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.IsNot: ast.Is}


def is_harmless(test: ast.expr) -> bool:
    """Whether a test leaves out parameters without a gradient only: ``if p.requires_grad``, ``if p.grad is not None``."""
    return any(isinstance(x, ast.Attribute) and x.attr in ("grad", "requires_grad") for x in ast.walk(test))


def chosen(
    machine: Machine, one: Elements, target: ast.expr, tests: Sequence[ast.expr], *, holds: bool = True
) -> Elements | None:
    """``[p for n, p in model.named_parameters() if n.startswith("head")]``; None if the test does not tell the parts apart."""
    rest = [x for test in tests for x in _conjuncts(test) if not is_harmless(x)]
    names = [x.id for x in ast.walk(target) if isinstance(x, ast.Name)]
    if len(rest) != 1 or len(one.params.known) != 1 or not one.params.is_certain or _freezes(machine.file):
        return None
    (whole,) = one.params.known
    test, sign = _positive(rest[0])
    text = _text(test, names)
    if not isinstance(whole, tuple) or isinstance(whole[-1], Choice) or not _tells(test, names) or _RECURRENT.search(text):
        return None
    machine.chosen.add(whole)
    return replace(one, token=(*one.token, text, sign is holds), params=Params.of((*whole, Choice(text, sign is holds))))


def sides(machine: Machine, test: ast.expr) -> Iterator[tuple[str, Elements, Elements]]:
    """``if "bias" in name:`` in a loop over parameters: the name of each such parameter, and what it is on each side."""
    names = machine.scope.names
    for key, one in list(names.items()) if machine.loops else ():
        if isinstance(one, Elements) and one.is_one and one.loop == machine.loops[-1] and "gradient" not in one.marks:
            pair = [x for x, value in names.items() if value.token == (*one.token, 0)] + [key]
            target = ast.Tuple([ast.Name(x) for x in pair])
            yes, no = (chosen(machine, one, target, [test], holds=x) for x in (True, False))
            if yes is not None and no is not None:
                yield key, yes, no
            elif any(isinstance(x, tuple) and isinstance(x[-1], Choice) for x in one.params.known):  # a test within a test
                some = replace(one, params=Params(one.params.known, is_all=False))
                yield key, some, some


def _freezes(file: File) -> bool:
    """Whether some parameters may have no gradients: the source freezes them, or computes without them where it trains."""
    if _FREEZES.search(file.text):
        return True
    for body in (*(x.body for x, _ in file.functions), file.own):
        nodes = [y for x in body for y in ast.walk(x)]
        blocks = [
            x
            for x in nodes
            if isinstance(x, ast.With) and any(last(getattr(y.context_expr, "func", y)) in _OFF for y in x.items)
        ]
        computes = any(isinstance(y, ast.Assign) and isinstance(y.value, ast.Call) for x in blocks for y in ast.walk(x))
        if computes and any(isinstance(x, ast.Call) and last(x.func) == "backward" for x in nodes):
            return True
    return False


def _conjuncts(test: ast.expr) -> list[ast.expr]:
    is_and = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
    return [y for x in test.values for y in _conjuncts(x)] if is_and and isinstance(test, ast.BoolOp) else [test]


def _positive(test: ast.expr) -> tuple[ast.expr, bool]:
    """A test without its negation, and whether it had none."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner, sign = _positive(test.operand)
        return inner, not sign
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and (other := _NEGATED.get(type(test.ops[0]))) is not None:
        return ast.Compare(test.left, [other()], test.comparators), False
    return test, True


def _text(test: ast.expr, names: Sequence[str]) -> str:
    """A test with the same names for a parameter and its name in every loop."""
    text = ast.unparse(test)
    for name, usual in zip(names, ("name", "p") if len(names) > 1 else ("p",), strict=False):
        text = re.sub(rf"(?<![\w.'\"]){name}\b", usual, text)
    return text


def _tells(test: ast.expr, names: Sequence[str]) -> bool:
    """Whether a test is one of names or of shapes, which some parameters pass and others do not."""
    nodes = list(ast.walk(test))
    texts = [x.value for x in nodes if isinstance(x, ast.Constant) and isinstance(x.value, str)]
    is_named = len(names) > 1 and any(isinstance(x, ast.Name) and x.id == names[0] for x in nodes)
    is_shaped = any(isinstance(x, ast.Attribute) and x.attr in _SHAPES for x in nodes)
    has_list = any(
        isinstance(x, (ast.GeneratorExp, ast.Name)) and not (isinstance(x, ast.Name) and x.id in names) for x in nodes
    )
    return is_shaped or (is_named and (has_list or any(x.strip(".") not in _WRAPPERS for x in texts)))
