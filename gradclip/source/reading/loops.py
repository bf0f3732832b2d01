"""Loops: over parameters, over gradients, over a few known objects; any other that has events runs twice."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gradclip.rounds import Backward, Clip, Step
from gradclip.source.reading import generators, handlers
from gradclip.source.reading.values import Elements, Gradients, Tuple, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["each", "repeat"]


def each(machine: Machine, node: ast.For | ast.AsyncFor) -> str:
    if (made := generators.looped(machine, node.iter)) is not None:
        return generators.run(machine, made, lambda value: _pass(machine, node, value))
    listed = machine.value(node.iter)
    key = (id(node), machine.scope.key)
    one_by_one: list[Value] | None = None
    if isinstance(listed, Elements) and not listed.is_one:
        one_by_one = [replace(listed, token=(*listed.token, "one"), is_one=True, loop=key)]
    elif isinstance(listed, Gradients):
        one_by_one = [replace(listed, is_one=True)]
    elif isinstance(listed, Tuple) and handlers.are_few(listed):
        one_by_one = [replace(x, loop=key) if isinstance(x, Elements) else x for x in listed.items]

    def begin(number: int) -> None:
        if one_by_one is None:
            said = frozenset({"varies"}) | (listed.marks & {"open"})
            made = machine.thing(node, ast.unparse(node.target), (key, tuple(machine.passes)), said)
        machine.bind(node.target, made if one_by_one is None else one_by_one[number])

    count = len(one_by_one) if one_by_one is not None else _passes(machine, node)
    return _repeated(machine, node, count, len(machine.events), begin) or machine.block(node.orelse)


def _pass(machine: Machine, node: ast.For | ast.AsyncFor, value: Value) -> str:
    machine.bind(node.target, value)
    left = machine.block(node.body)
    return "" if left == "continue" else left


def repeat(machine: Machine, node: ast.While) -> str:
    start = len(machine.events)
    machine.value(node.test)
    return _repeated(machine, node, _passes(machine, node), start)


def _left_early(machine: Machine, node: ast.AST, start: int) -> None:
    """A loop over parameters clips one, and ends there."""
    for i, x in enumerate(machine.events[start:], start):
        if isinstance(x, Clip) and x.loops == tuple(machine.loops) and _is_last(node, getattr(x.where, "line", 0)):
            machine.events[i] = replace(x, is_first=True)


def _tried(machine: Machine, node: ast.For | ast.AsyncFor | ast.While, start: int) -> None:
    """A test ends the loop: the backward pass before it may be a try, which the next one replaces."""
    depth = len(machine.loops) + 1
    made = [(i, x) for i, x in enumerate(machine.events[start:], start) if isinstance(x, Backward) and len(x.loops) == depth]
    if made and (isinstance(node, ast.While) or any(isinstance(x, ast.Break) for x in ast.walk(node))):
        for i, x in made:
            machine.events[i] = replace(x, is_try=True)


def _is_last(loop: ast.AST, line: int) -> bool:
    """Whether a return or a break always follows the statement in a line, which is about the loop's target."""
    names = {x.id for x in ast.walk(getattr(loop, "target", loop)) if isinstance(x, ast.Name)}
    for x in ast.walk(loop):
        for body in (x.body, x.orelse) if x is loop or isinstance(x, ast.If) else ():  # type: ignore[attr-defined]
            place = next((i for i, y in enumerate(body) if y.lineno <= line <= (y.end_lineno or 0)), len(body))
            is_left = any(isinstance(y, (ast.Return, ast.Break)) for y in body[place + 1 :])
            if is_left and any(isinstance(y, ast.Name) and y.id in names for y in ast.walk(body[place])):
                return True
    return False


def _passes(machine: Machine, node: ast.stmt) -> int:
    return 2 if machine.scope.file.matters(node) else 1


def _repeated(
    machine: Machine,
    node: ast.For | ast.AsyncFor | ast.While,
    count: int,
    start: int,
    begin: Callable[[int], None] = lambda number: None,
) -> str:
    """Run the body of a loop so many times; return how a pass leaves the code around the loop, if it does.

    ``start`` is the number of events before the loop. Where a loop within this one has stepped in each of its passes, one pass
    of this one shows all.
    """
    for number in range(count):
        machine.passes.append(number)
        begin(number)
        machine.loops.append((id(node), machine.scope.key))
        before = len(machine.events)
        left = machine.block(node.body)
        if left in ("return", "break") and isinstance(node, ast.For):
            _left_early(machine, node, before)
        machine.loops.pop()
        machine.passes.pop()
        if left in ("return", "raise"):
            return left
        depth = len(machine.loops) + 1
        _tried(machine, node, before)
        inner = [x.where for x in machine.events[start:] if isinstance(x, Step) and len(x.loops) > depth] if number == 0 else []
        if left == "break" or len(set(inner)) < len(inner):
            break
    return ""
