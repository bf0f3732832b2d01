"""The attributes of objects: of the project's own, of models, optimizers and parameters, of gradients."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gradclip.source.reading import elements, forward, gradients, handlers, measures, scales, tests
from gradclip.source.reading.values import (
    Bound,
    Class,
    Constant,
    Elements,
    Function,
    Gradients,
    Instance,
    Library,
    Made,
    Thing,
    Value,
    last_of,
    named,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["class_of", "of"]

_WRAPPED = frozenset({"module", "_orig_mod", "unwrapped"})  #: the model in a wrapper
_VARIABLES = frozenset({"trainable_variables", "trainable_weights", "variables"})
_NUMBERS = {"inf": math.inf, "nan": math.nan, "infty": math.inf}


def of(machine: Machine, owner: Value, name: str) -> Value:
    """An attribute of an object."""
    if isinstance(owner, Library):
        if name in _NUMBERS:
            return Constant((name,), value=_NUMBERS[name])
        return Library((*owner.token, name), name=f"{owner.name}.{name}")
    if isinstance(owner, Instance):
        if name in owner.fields:
            return owner.fields[name]
        method = machine.method(owner, name)
        if method is not None:
            is_property = any(getattr(x, "id", "") == "property" for x in getattr(method.node, "decorator_list", ()))
            if is_property:
                return machine.enter(method, (), {}, method.node, owner)
            return Bound((*owner.token, name), owner=owner, name=name, function=method)
        if owner.base is not None and name == "param_groups":
            return of(machine, owner.base, name)
        if name not in _VARIABLES:
            return _of_class(machine, owner, name)
    if name == "__class__" and isinstance(owner, (Instance, Made, Thing)):
        return class_of(owner)
    if isinstance(owner, Class) and (one := handlers.member(machine, owner, name)) is not None:
        return one
    if machine.parts and (part := machine.parts.get(owner.token, {}).get(name)) is not None:
        return part
    if name in _WRAPPED and last_of(owner) in machine.scope.file.modules | {"model", "module"}:
        return owner
    if name == "grad" and isinstance(owner, Elements):
        is_local = bool(machine.sharded) and not owner.params.known.isdisjoint(machine.sharded)
        said = frozenset({"gradient", measures.LOCAL} if is_local else {"gradient"})
        return Elements((*owner.token, "grad"), said, params=owner.params, is_one=owner.is_one, loop=owner.loop)
    if name in ("data", "value") and isinstance(owner, Elements):
        return replace(owner, marks=owner.marks | {"copy"}) if name == "data" and "gradient" not in owner.marks else owner
    if name == "grads" and isinstance(owner, Gradients):  # gradclip.clip(grads, rule).grads
        return owner
    if name == "_local_tensor" and isinstance(owner, Elements) and "gradient" in owner.marks:
        return elements.shards(owner, is_local=True)
    if name == "param_groups":
        return Elements((*owner.token, name), params=gradients.of_optimizer(owner), of=owner)
    if name in _VARIABLES:
        return Elements((*owner.token, name), params=gradients.of_module(owner))
    marks = owner.marks & {"varies", "open"} | tests.marked(name) | forward.kept(owner.marks, name) | scales.marked(owner, name)
    if getattr(owner, "is_open", False):
        marks |= {"open"}
    held = owner.given.get(name) if isinstance(owner, Made) else None
    if isinstance(held, (Made, Function)) or (
        held is not None and isinstance(owner, Made) and owner.name.endswith("Namespace")
    ):
        return named(held, name)
    if name == "update" and isinstance(owner, Made) and owner.name.startswith("optax."):
        return Bound((*owner.token, name), owner=owner, name=name)
    if name == "sync_gradients":
        return gradients.synced(machine, owner)
    return Thing((*owner.token, name), marks)


def class_of(one: Value) -> Value:
    """``type(model)``, ``model.__class__``: what it makes has parameters of its own."""
    if isinstance(one, Instance):
        return one.of
    name = one.name if isinstance(one, Made) else "type.Same"
    return Library((name,), name=name)


def _of_class(machine: Machine, owner: Instance, name: str) -> Value:
    """An attribute that the class itself has."""
    for one in (owner.of, *machine.bases(owner.of)):
        for statement in one.node.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(getattr(x, "id", "") == name for x in targets) and (given := getattr(statement, "value", None)) is not None:
                value = machine.value(given)
                if isinstance(value, Instance):  # of a factory: one for each object
                    owner.fields[name] = value
                return named(value, name)
    if name in _WRAPPED:
        return owner
    found = Thing((*owner.token, name), tests.marked(name))
    owner.fields[name] = found
    return found
