"""Objects of dataclasses: the defaults of their fields, and copies with other values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gradclip.source.reading.values import Call, Instance, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["function"]

_FIELDS = frozenset({"dataclasses.field", "attrs.field", "attr.ib"})
_COPIES = frozenset({"dataclasses.replace", "copy.replace", "attrs.evolve", "attr.evolve"})


def function(machine: Machine, name: str, given: Call) -> Value | None:
    """``field(default_factory=Optim)``, ``replace(config, rate=0.1)``; None for any other function."""
    if name in _FIELDS:
        make = given.given.get("default_factory", given.given.get("factory"))
        return given.given.get("default") if make is None else machine.apply(make, Call(given.node, (), {}))
    first = given.get(0)
    if name not in _COPIES or not isinstance(first, Instance) or given.is_starred:
        return None
    made = replace(first, token=machine.fresh(given.node, first.of.node.name), fields={**first.fields, **given.given})
    machine.objects[made.token] = made
    return made
