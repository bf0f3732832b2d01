"""Functions that a program keeps to call them later: registries of handlers, keyed by events, and decorators that fill them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gradclip.source.reading.values import Bound, Call, Class, Constant, Function, Instance, Table, Tuple, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["are_few", "default", "lists", "member", "registered"]

_ENUMS = ("Enum", "IntEnum", "StrEnum", "Flag")
_CALLED = (Function, Bound, Instance, Class)
_FEW = 4  #: elements of a list that a loop takes one by one
_MOST = 16  #: the same, of functions


def registered(machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, made: Value) -> Value | None:
    """``@engine.on(Events.STEP)``: a decorator of the project gets what it decorates; what it makes around it, if it does."""
    result: Value | None = None
    for decorator in reversed(node.decorator_list) if machine.scope.file.matters(node) else ():
        root = decorator.func if isinstance(decorator, ast.Call) else decorator
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or not isinstance(machine.scope.find(root.id, machine), _CALLED):
            continue
        target, before = machine.value(decorator), len(machine.events)
        if isinstance(target, _CALLED):
            call = Call(ast.copy_location(ast.Call(decorator, [], []), decorator), (result or made,), {})
            around = machine.apply(target, call)
            result = around if isinstance(around, Function) and around is not made else result
        del machine.events[before:]
    return result


def member(machine: Machine, owner: Class, name: str) -> Value | None:
    """``Events.STEP``, a member of an enumeration or a string of a class: equal to itself alone."""
    for x in owner.node.body:
        if isinstance(x, ast.Assign) and any(isinstance(y, ast.Name) and y.id == name for y in x.targets):
            if machine.is_a(owner, _ENUMS):
                return Constant((*owner.token, name), value=f"{owner.node.name}.{name}")
            return machine.value(x.value) if isinstance(x.value, ast.Constant) and isinstance(x.value.value, str) else None
    return None


def lists(machine: Machine, node: ast.DictComp) -> Table | None:
    """``{event: [] for event in Events}``: a list for each key."""
    is_empty = isinstance(node.value, ast.List) and not node.value.elts
    return Table(machine.fresh(node, "table"), is_of_lists=True) if is_empty else None


def default(owner: Table, key: object, given: Value | None) -> Value | None:
    """``handlers.setdefault(event, [])``; None if it is not known."""
    if key not in owner.items and given is not None:
        owner.items[key] = given
    return owner.items.get(key)


def are_few(listed: Tuple) -> bool:
    """Whether a loop takes the elements of a list one by one: a few objects, or more of them to call."""
    return len(listed.items) <= _FEW or (len(listed.items) <= _MOST and all(isinstance(x, _CALLED) for x in listed.items))
