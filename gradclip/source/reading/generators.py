"""Functions that yield: a context manager's code around the block of a ``with``, a generator's around the body of a loop."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradclip.source.reading.program import last
from gradclip.source.reading.values import Bound, Call, Constant, Function, Instance, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["Managed", "Yields", "entered", "left", "looped", "managed", "run", "yielded"]

_MANAGERS = frozenset({"contextmanager", "asynccontextmanager"})

Body = Callable[[Value], str]  #: gets what a function yields; returns how the block is left


@dataclass(eq=False, slots=True)
class Managed(Value):
    """The call of a function that yields: nothing of it has run."""

    function: Function = None  # type: ignore[assignment]
    given: Call = None  # type: ignore[assignment]
    owner: Value | None = None


@dataclass(eq=False, slots=True)
class Yields:
    """What runs where a function yields."""

    node: ast.AST  #: the function's
    body: Body
    is_done: bool = False
    left: str = ""
    results: list[Value] = field(default_factory=list)


def managed(function: Function, given: Call, owner: Value | None = None) -> Managed | None:
    """``clipped(model)`` of ``@contextmanager def clipped(model)``; None for any other function."""
    names = (last(x) for x in getattr(function.node, "decorator_list", ()))
    return Managed(function.token, function=function, given=given, owner=owner) if any(x in _MANAGERS for x in names) else None


def run(machine: Machine, of: Managed, body: Body) -> str:
    """Run a function that yields, and a block where it does; return how the block is left."""
    scope = machine.scope

    def block(value: Value) -> str:
        before, machine.scope = machine.scope, scope
        way = body(value)
        one.results.append(machine.result)
        machine.scope = before
        return way

    one = Yields(of.function.node, block)
    machine.yields.append(one)
    machine.enter(of.function, of.given.args, of.given.given, of.given.node, of.owner)
    machine.yields.remove(one)
    if not one.is_done:  # it could not be read
        return body(machine.thing(of.given.node, "yielded"))
    machine.result = one.results[-1]
    return one.left


def yielded(machine: Machine, node: ast.Yield) -> Value:
    """``yield``: the block runs here."""
    value = machine.value(node.value) if node.value is not None else Constant(("None",), value=None)
    one = machine.yields[-1] if machine.yields else None
    if one is not None and machine.stack and one.node is machine.stack[-1] and not one.left:
        one.is_done = True
        machine.yields.pop()  # the block may have generators of its own
        one.left = one.body(value)
        machine.yields.append(one)
    return machine.thing(node, "sent")


def looped(machine: Machine, node: ast.expr) -> Managed | None:
    """The generator with events that a loop runs: ``for loss in passes(model, batches)``; None if it is none."""
    target = machine.value(node.func) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
    function = target.function if isinstance(target, Bound) else target
    if not isinstance(node, ast.Call) or not isinstance(function, Function) or not function.scope.file.matters(function.node):
        return None
    if not any(isinstance(x, ast.Yield) for x in ast.walk(function.node)):
        return None
    args = tuple(machine.value(x) for x in node.args)
    given = Call(node, args, {x.arg: machine.value(x.value) for x in node.keywords if x.arg is not None})
    return Managed(function.token, function=function, given=given)


def entered(machine: Machine, value: Value, node: ast.expr) -> Value:
    """What ``with`` binds of an object of the project."""
    method = machine.method(value, "__enter__") if isinstance(value, Instance) else None
    return value if method is None else machine.enter(method, (), {}, node, value)


def left(machine: Machine, value: Value) -> None:
    """The end of the block."""
    if isinstance(value, Instance):
        machine.hook(value, "__exit__")
