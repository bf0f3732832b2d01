"""Optimizers that clip in their own step: what clips for them, whom it leaves out, and clips that none of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradclip.natives import BY_NAME, Kind
from gradclip.rounds import NO_PARAMS, Clip, Params
from gradclip.source.reading.values import Constant, Elements, Instance, Made, Tuple, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["bound", "clips", "exempt", "is_exempt", "is_object", "stepped_without"]

_ATTRIBUTES = ("weight_attr", "bias_attr")


def is_object(made: Made) -> bool:
    """Whether it is an object that clips for an optimizer."""
    own = BY_NAME.get(made.name)
    return own is not None and own.kind is Kind.OBJECT


def clips(optimizer: Made) -> bool:
    """Whether an optimizer has a clip of its own."""
    if optimizer.name.startswith("gradclip") and optimizer.name.endswith("clipped"):
        return True
    slot = optimizer.given.get("grad_clip")
    return isinstance(slot, Made)


# ---- clips that no optimizer has ---------------------------------------------------------------------------------------


def bound(machine: Machine, value: Value) -> None:
    """``clip = ClipGradByNorm(1.0)``: nothing reads it so far."""
    if isinstance(value, Made) and is_object(value) and value.where is not None:
        machine.idle[value.where] = value


def stepped_without(machine: Machine, owner: Value, text: str) -> None:
    """An optimizer without a clip steps, while a clip has been made that nothing has read."""
    for where, made in machine.idle.items() if isinstance(owner, Made) and not clips(owner) else ():
        why = f"No optimizer has this clip, and {text} takes unclipped gradients."
        machine.unread[where] = Clip(where=where, text=made.text, unread=why)


# ---- parameters that a clip leaves out ---------------------------------------------------------------------------------


def is_exempt(module: Value, depth: int = 6) -> bool:
    """Whether each layer of a module says that none of its parameters is clipped: Paddle's ``need_clip=False``."""
    layers = [x for x in _layers(module, depth) if any(isinstance(y, Constant) for y in (*x.args, *x.given.values()))]
    return bool(layers) and all(_is_off(x.given.get(name)) for x in layers for name in _ATTRIBUTES)


def _layers(module: Value, depth: int) -> list[Made]:
    """The layers that a module consists of."""
    if isinstance(module, Made) and not any(isinstance(x, (Made, Tuple)) for x in module.args):
        return [module]
    parts = module.args if isinstance(module, Made) else module.items if isinstance(module, Tuple) else ()
    parts = tuple(module.fields.values()) if isinstance(module, Instance) else parts
    parts = tuple(x for x in parts if isinstance(x, (Instance, Tuple)) or (isinstance(x, Made) and ".nn." in x.name))
    return [x for part in parts for x in _layers(part, depth - 1)] if depth else []


def _is_off(attribute: Value | None) -> bool:
    """Whether an attribute of a layer keeps its parameter from the clip, or from being there."""
    off = attribute.given.get("need_clip") if isinstance(attribute, Made) else attribute
    return isinstance(off, Constant) and off.value is False


def exempt(optimizer: Value) -> Params:
    """The parameters of an optimizer that its clip leaves out."""
    listed = optimizer.given.get("parameters") if isinstance(optimizer, Made) else None
    return listed.params if isinstance(listed, Elements) and listed.is_exempt else NO_PARAMS
