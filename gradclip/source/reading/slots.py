"""Optimizers that clip in their own step: what clips for them, whom it leaves out, and clips that none of them has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from gradclip.natives import KEYWORDS, Kind
from gradclip.natives.own import is_clipped, native_of
from gradclip.rounds import NO_PARAMS, Backward, Clip, Params, Step
from gradclip.source.reading.values import Call, Constant, Elements, Instance, Made, Tuple, Value

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["bound", "clips", "compiled", "exempt", "is_exempt", "is_object", "is_off", "mark", "own_clip", "stepped_without"]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
#: the attributes of the weights of Paddle's layers; that of the others is the last one
_WEIGHTS = dict.fromkeys(
    ("GRU", "LSTM", "SimpleRNN", "GRUCell", "LSTMCell", "SimpleRNNCell"), ("weight_ih_attr", "weight_hh_attr")
)
_WEIGHT = ("weight_attr",)
_NO_PARAMS = re.compile(r"Dropout|Pool|Pad|Upsample|Softmax|Sigmoid|Tanh|(Re|Ge|Si|E|Se)LU|Swish|Flatten|Loss|Identity|Norm")


def is_object(made: Made) -> bool:
    """Whether it is an object that clips for an optimizer."""
    own = native_of(made.name)
    return own is not None and own.kind is Kind.OBJECT


def clips(optimizer: Made) -> bool:
    """Whether an optimizer has a clip of its own."""
    return is_clipped(optimizer.name) or isinstance(optimizer.given.get("grad_clip"), Made)


def own_clip(owner: Value | None) -> str:
    """The clip that an optimizer of Keras has itself, as it is shown; "" if it has none."""
    if not isinstance(owner, Made):
        return ""
    if is_clipped(owner.name):
        return owner.text
    keywords = [native.keyword for native in KEYWORDS.get(owner.name, ())]
    on = [x for x in keywords if x in owner.given and not is_off(owner.given[x])]
    return f"{owner.text} with `{on[0]}`" if on else ""


def compiled(machine: Machine, model: Value, optimizer: Value, given: Call) -> None:
    """``model.compile(optimizer)``: from here on it steps the model's parameters, in a loop of its own."""
    is_plain = isinstance(optimizer, Made) and optimizer.node is not None and all(x.arg for x in optimizer.node.keywords)
    name = optimizer.name if is_plain and isinstance(optimizer, Made) else ""
    if (
        is_clipped(name)
        or name.rpartition(".")[2][:1].isupper()
        or (isinstance(optimizer, Constant) and isinstance(optimizer.value, str))
    ):
        about = machine.about(given.node)
        params, clip = Params.of(model.token), own_clip(optimizer)
        stage = (about["where"], len(machine.stages))  # one call may compile several times
        about["loops"] = (stage,)
        token = optimizer.token if isinstance(optimizer, Made) else stage
        machine.stages += [Backward(**about, params=params), Step(**about, params=params, optimizer=token, clip=clip)]


def is_off(value: Value) -> bool:
    """Whether a keyword's limit is 0 or None."""
    return isinstance(value, Constant) and not value.value


# ---- clips that no optimizer has ---------------------------------------------------------------------------------------


def bound(machine: Machine, targets: list[ast.expr], value: Value) -> None:
    """``clip = ClipGradByNorm(1.0)``: nothing reads it so far."""
    if not isinstance(value, Made) or value.where is None or not isinstance(target := targets[0], ast.Name) or len(targets) > 1:
        return
    if any(isinstance(x, Made) and (is_object(x) or own_clip(x)) for x in (value, *_links(value))):
        around = machine.stack[-1] if machine.stack else machine.scope.file.tree
        if not _is_elsewhere(around, target.id, value):
            machine.idle[value.where] = value


def _links(made: Made) -> tuple[Value, ...]:
    return made.args if made.name.endswith(".chain") else ()


def _is_elsewhere(around: ast.AST, name: str, made: Made) -> bool:
    """Whether a function within the code around an assignment reads the name, or a test there decides on the clip's limit."""
    inner, tested = _read(around)
    limits = {x.id for x in ast.walk(made.node) if isinstance(x, ast.Name)} if made.node is not None else set[str]()
    return name in inner or not limits.isdisjoint(tested)


@lru_cache(maxsize=64)  # a search for each clip would take time that grows with the square of their number
def _read(around: ast.AST) -> tuple[frozenset[str], frozenset[str]]:
    """The names that functions within some code read, and those that its tests read."""
    nodes = list(ast.walk(around))
    inner = (x for x in nodes if isinstance(x, _FUNCTIONS) and x is not around)
    tests = (x.test for x in nodes if isinstance(x, (ast.If, ast.IfExp)))
    return _names(inner), _names(tests)


def _names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    found = (y for x in nodes for y in ast.walk(x))
    return frozenset(x.id for x in found if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load))


def stepped_without(machine: Machine, owner: Value, text: str) -> None:
    """An optimizer without a clip steps, while a clip has been made that nothing has read."""
    has_none = not isinstance(owner, Constant) or isinstance(owner.value, str)
    if isinstance(owner, Made):
        has_none = not (clips(owner) or own_clip(owner) or any(isinstance(x, Made) and is_object(x) for x in _links(owner)))
    for where, made in machine.idle.items() if has_none and isinstance(owner, (Made, Constant)) else ():
        why = "" if is_object(made) else f"Nothing uses this clip, and {text} takes unclipped gradients."
        clip = Clip(where=where, text=made.text, params=NO_PARAMS, returns=True, is_dropped=not why, unread=why)
        machine.unread[where] = (clip, Step(text=text))


def set_late(machine: Machine, owner: Made, target: ast.Attribute, value: Value) -> None:
    """``opt.grad_clip = clip`` after the constructor of Paddle, which keeps it as ``_grad_clip``."""
    if target.attr == "_grad_clip":
        owner.given = {**owner.given, "grad_clip": value}
    elif isinstance(value, Made) and is_object(value):
        why = "Paddle's optimizer reads the clip that its constructor got: this attribute changes nothing."
        machine.taken.append((Clip(**machine.about(target), params=NO_PARAMS, unread=why),))


# ---- parameters that a clip leaves out ---------------------------------------------------------------------------------


def is_exempt(machine: Machine, module: Value, depth: int = 6) -> bool:
    """Whether each layer of a module says that its weights are not clipped: Paddle's ``need_clip=False``."""
    layers = [(x, x.name.rpartition(".")[2]) for x in _layers(machine, module, depth) if ".nn." in x.name]
    layers = [(x, name) for x, name in layers if not _NO_PARAMS.search(name)]
    return bool(layers) and all(_is_off(x.given.get(weight)) for x, name in layers for weight in _WEIGHTS.get(name, _WEIGHT))


def _layers(machine: Machine, module: Value, depth: int) -> list[Made]:
    """The layers that a module consists of."""
    parts = module.args if isinstance(module, Made) else module.items if isinstance(module, Tuple) else ()
    parts = tuple(module.fields.values()) if isinstance(module, Instance) else parts
    parts = tuple(machine.objects.get(x.token[1:], x) if x.token[:1] == ("list",) else x for x in parts)  # [Block() for ...]
    if isinstance(module, Made) and not any(isinstance(x, (Made, Tuple, Instance)) for x in parts):
        return [module]
    parts = tuple(x for x in parts if isinstance(x, (Instance, Tuple)) or (isinstance(x, Made) and ".nn." in x.name))
    return [x for part in parts for x in _layers(machine, part, depth - 1)] if depth else []


def _is_off(attribute: Value | None) -> bool:
    """Whether an attribute of a layer keeps its parameter from the clip, or from being there."""
    off = attribute.given.get("need_clip") if isinstance(attribute, Made) else attribute
    return isinstance(off, Constant) and off.value is False


def exempt(machine: Machine, optimizer: Value) -> Params:
    """The parameters of an optimizer that its clip leaves out."""
    listed = optimizer.given.get("parameters") if isinstance(optimizer, Made) else None
    if not isinstance(listed, Elements):
        return NO_PARAMS
    return listed.params if listed.is_exempt else machine.exempt


def mark(machine: Machine, owner: Value, flag: Value) -> None:
    """``p.need_clip = False`` in a loop over all."""
    if isinstance(owner, Elements) and owner.is_one and owner.params.is_certain and not machine.conditions:
        off = isinstance(flag, Constant) and flag.value is False
        known = machine.exempt.known | owner.params.known if off else machine.exempt.known - owner.params.known
        machine.exempt = Params(known)
