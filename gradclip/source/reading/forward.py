"""Through which modules a loss has been computed: a backward pass of it certainly has their gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gradclip.rounds import Params
from gradclip.source.reading import modules
from gradclip.source.reading.values import Instance, Made, Thing, Value, last_of

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["DETACHED", "THROUGH", "kept", "params", "through"]

THROUGH = "through:"  #: the mark of a module's output; the number of the module follows
DETACHED = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})  #: contexts without gradients
_CUTS = frozenset({"detach", "detach_", "item", "numpy", "tolist", "argmax", "stop_gradient", "isfinite", "isnan"})
_NO_VALUE = frozenset({"data", "shape", "device", "dtype", "ndim", "training", "config"})


def through(machine: Machine, owner: Value) -> frozenset[str]:
    """The mark of a module's output, if the module can have gradients here."""
    is_named = isinstance(owner, Thing) and last_of(owner) in machine.scope.file.modules
    if not (is_named or isinstance(owner, (Made, Instance))) or not owner.token:
        return frozenset()
    if any(x.kind == "detached" for x in machine.contexts) or modules.is_frozen(machine, owner.token):
        return frozenset()
    mark = f"{THROUGH}{machine.token('module', owner.token)[1]}"
    machine.reached[mark] = owner.token
    return frozenset({mark})


def kept(marks: Iterable[str], name: str) -> frozenset[str]:
    """What of these marks the attribute ``name`` of a value has, or the result of this function or method."""
    if name in _CUTS or name in _NO_VALUE:
        return frozenset()
    return frozenset(x for x in marks if x.startswith(THROUGH))


def params(machine: Machine, marks: Iterable[str]) -> Params:
    """The parameters of the modules through which a loss has been computed: there may be others."""
    return Params(frozenset(machine.reached[x] for x in marks if x in machine.reached), is_all=False)
