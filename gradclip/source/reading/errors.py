"""A clamp of an error or of a loss that the source calls gradient clipping: out of its bounds the gradient is 0."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gradclip.source.reading.program import File, Function, last

__all__ = ["found"]

_CLAMPS = frozenset({"clamp", "clamp_", "clip", "clip_", "clip_by_value"})
_ERROR = re.compile(r"(^|_)(td|tde|deltas?|errs?|errors?|residuals?|diffs?)(\d|_|$)|error|loss", re.IGNORECASE)
_NO_ERROR = re.compile(r"priorit|prob|ratio|value|grad", re.IGNORECASE)
#: words that mean the gradient: "gradient clipping", "clip the TD error"; and those of a bound, "grad_clip"
_SAYS = re.compile(
    r"\b(grad(ient)?s?|td|error|delta|loss)[\s_-]*(norm[\s_-]*)?(clip|clamp)"
    r"|\b(clip|clamp|bound)\w*[\s_-]+(of[\s_-]+)?(the[\s_-]+)?(td[\s_-]*|bellman[\s_-]*)?(grad(ient)?s?|errors?|deltas?)\b",
    re.IGNORECASE,
)
_BOUND = re.compile(r"grad|(error|delta|td|loss)_?(clip|clamp)|(clip|clamp)_?(error|delta|td|loss)", re.IGNORECASE)
_TRAINS = re.compile(r"backward\(|GradientTape|value_and_grad|jax\.grad|minimize\(")
_ABOVE = 2  #: lines of comments above a statement that are about it
_WHY = (
    "It bounds the error or the loss, whose gradient is 0 out of the bounds: from the largest errors nothing is learned. "
    "A Huber loss bounds the gradient."
)


def found(file: File) -> Iterator[tuple[ast.expr, str]]:
    """Each clamp, and what is wrong with it."""
    if not _TRAINS.search(file.text) or not (_SAYS.search(file.text) or _BOUND.search(file.text)):
        return
    lines = file.text.splitlines()
    for function, _ in file.functions:
        yield from ((x, _WHY) for x in _within(function.body, function, lines))
    yield from ((x, _WHY) for x in _within(file.own, None, lines))


def _within(body: list[ast.stmt], around: Function | None, lines: list[str]) -> Iterator[ast.expr]:
    """The clamps in the statements of a function, or of a module."""
    nodes = [y for x in body for y in ast.walk(x)]
    by_hand = (x for x in nodes if isinstance(x, ast.Call) and last(x.func) == "backward" and x.args)
    if (around is not None and around.name == "backward") or any(not _names(x.args[0]) & {"loss"} for x in by_hand):
        return  # the clamped error is the gradient
    name = around.name if around is not None else ""
    added = {
        id(y) for x in nodes if isinstance(x, ast.BinOp) and isinstance(x.op, (ast.Add, ast.Sub)) for y in (x.left, x.right)
    }
    for statement in (x for x in nodes if isinstance(x, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr))):
        for call in (x for x in ast.walk(statement) if isinstance(x, ast.Call) and last(x.func) in _CLAMPS):
            if id(call) not in added and _is_of_error(statement, call) and _is_said(statement, call, name, lines):
                yield call


def _is_of_error(statement: ast.stmt, call: ast.Call) -> bool:
    """Whether a call bounds an error or a loss, and gradients go through it."""
    func = call.func
    of = func.value if isinstance(func, ast.Attribute) and not _is_library(func.value) else call.args[0] if call.args else None
    names = _names(of) if of is not None else set[str]()
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    names |= {last(x) for x in targets if x is not None}
    is_free = _is_library(getattr(func, "value", None), numpy=True) or not names.isdisjoint(
        ("detach", "stop_gradient", "no_grad")
    )
    return any(map(_ERROR.search, names)) and not any(map(_NO_ERROR.search, names)) and not is_free


def _is_library(node: ast.expr | None, *, numpy: bool = False) -> bool:
    return isinstance(node, ast.Name) and node.id in (
        ("np", "numpy") if numpy else ("torch", "tf", "jnp", "np", "K", "ops", "F")
    )


def _is_said(statement: ast.stmt, call: ast.Call, function: str, lines: list[str]) -> bool:
    """Whether a bound, a comment or the function says that gradients are clipped; bounds without a name are -x and x."""
    bounds = [*call.args, *(x.value for x in call.keywords)]
    if any(_BOUND.search(x) for y in bounds[-2:] for x in _names(y)):
        return True
    texts = {ast.unparse(x) for x in bounds}
    is_even = any(f"-{x}" in texts for x in texts)
    above = lines[max(0, statement.lineno - 1 - _ABOVE) : statement.lineno - 1]
    comments = [x for x in above if x.lstrip().startswith("#")]
    comments += [x.partition("#")[2] for x in lines[statement.lineno - 1 : statement.end_lineno]]
    return is_even and (any(map(_SAYS.search, comments)) or _SAYS.search(function.replace("_", " ")) is not None)


def _names(node: ast.expr) -> set[str]:
    return {x.id if isinstance(x, ast.Name) else x.attr for x in ast.walk(node) if isinstance(x, (ast.Name, ast.Attribute))}
