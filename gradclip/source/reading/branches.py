"""A clip that is made for the optimizers of two branches, and that only one of them gets."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from gradclip.rounds import Backward, Condition, Event, Step
from gradclip.source.reading import gradients, slots, transformations
from gradclip.source.reading.values import Library, Made, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["bound", "sided"]

_Side = Sequence[ast.stmt]
_Test = tuple[_Side, ast.expr, tuple[_Side, _Side]]


def bound(machine: Machine, targets: Sequence[ast.expr], value: Value) -> None:
    """``clip = ClipGradByNorm(1.0)``."""
    target = targets[0]
    if not isinstance(value, Made) or not (slots.is_object(value) or transformations.is_clip(value)):
        return
    if isinstance(target, ast.Name) and len(targets) == 1:
        machine.branched += _parted(machine, machine.stack[-1] if machine.stack else machine.scope.file.tree, target.id, value)


def _parted(machine: Machine, around: ast.AST, name: str, made: Made) -> Iterator[tuple[Event, ...]]:
    """The steps of two optimizers, one on each side of a test, where only one side reads the name of a clip."""
    names, parted = _read(around)
    uses = names.get(name, ()) if parted else ()
    loads = [x for x in uses if isinstance(x.ctx, ast.Load)]
    for top, test, sides in parted if loads and len(uses) - len(loads) < 2 else ():
        readers = [any(x in loads for x in _nodes(side)) for side in sides]
        if sorted(readers) != [False, True] or _is_of_limit(test, made) or not _are_of(loads, top, test, sides):
            continue
        calls = [_optimizer(machine, side, name) for side in sides]
        if calls[0] is not None and calls[1] is not None:
            told = Condition(id(test), text=machine.shown(test))
            steps = [Step(**machine.about(x), optimizer=made.token) for x in calls if x is not None]
            first, second = (replace(x, tests=frozenset({replace(told, holds=i == 0)})) for i, x in enumerate(steps))
            clipped, bare = (first, second) if readers[0] else (second, first)
            backward = Backward(where=made.where)
            yield backward, replace(clipped, clip=made.text), backward, bare


@lru_cache(maxsize=64)  # a search for each clip would take time that grows with the square of their number
def _read(around: ast.AST) -> tuple[dict[str, list[ast.Name]], list[_Test]]:
    """The uses of each name in some code, and its tests."""
    names: dict[str, list[ast.Name]] = {}
    for x in ast.walk(around):
        if isinstance(x, ast.Name):
            names.setdefault(x.id, []).append(x)
    body = getattr(around, "body", None)
    return names, [*sided(body)] if isinstance(body, list) else []


def _are_of(loads: Sequence[ast.Name], top: _Side, test: ast.expr, sides: Sequence[_Side]) -> bool:
    """Whether nothing but the side of a test, or a branch before it, may read a clip."""
    inside, around = ({id(x) for part in parts for x in _nodes(part)} for parts in (sides, (top,)))
    return all(id(x) in inside or (id(x) in around and x.lineno < test.lineno) for x in loads)


def _is_of_limit(test: ast.expr, made: Made) -> bool:
    """Whether a test is about the limit of the clip itself."""
    given = [*made.node.args, *(x.value for x in made.node.keywords)] if made.node is not None else []
    return not {ast.dump(x) for x in given}.isdisjoint(ast.dump(x) for x in ast.walk(test))


def _nodes(side: _Side) -> Iterator[ast.AST]:
    return (x for statement in side for x in ast.walk(statement))


def sided(body: _Side, top: _Side = ()) -> Iterator[_Test]:
    """The tests of a block, with the statement at its top and the two sides: what follows a return is the other side."""
    for i, x in enumerate(body):
        if isinstance(x, ast.If):
            returns = isinstance(x.body[-1], ast.Return) and not x.orelse
            yield top or body[: i + 1], x.test, (x.body, body[i + 1 :] if returns else x.orelse)
            yield from sided(x.body, top or (x,))
            yield from sided(x.orelse, top or (x,))


def _optimizer(machine: Machine, side: _Side, name: str) -> ast.Call | None:
    """The first optimizer that a side makes; None if it may have a clip of its own, or something else steps."""
    found = [x for x in _nodes(side) if isinstance(x, ast.Call) and _is_optimizer(machine, x.func)]
    others = (y for x in found for y in x.keywords if getattr(y.value, "id", "") != name)
    return found[0] if found and not any(x.arg is None or "clip" in x.arg for x in others) else None


def _is_optimizer(machine: Machine, func: ast.expr) -> bool:
    """Whether an expression is a library's optimizer; a name alone has no events."""
    root = func
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or not isinstance(machine.scope.find(root.id, machine), Library):
        return False
    value = machine.value(func)
    return isinstance(value, Library) and gradients.is_optimizer_class(value.name)
