"""Gradients that are values: TensorFlow's tapes, JAX, optax, Keras. Each has its history, which is a round at a step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradclip.core.rule import Scope
from gradclip.natives import BY_NAME, KEYWORDS, Kind, Native
from gradclip.rounds import UNKNOWN, Backward, Clip, Condition, Event, Params, Reduce, Step, Unscale
from gradclip.source.reading.values import (
    SCALED,
    Bound,
    Call,
    Constant,
    Function,
    Gradients,
    Library,
    Made,
    Table,
    Thing,
    Tuple,
    Value,
    number_of,
    parameters,
    scaled_by,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["clip", "differentiated", "function", "is_derivative", "limit_of", "mapped", "method"]

_DERIVATIVE = re.compile(r"(^|\.)(filter_)?(value_and_)?grad$")
_MAPS = re.compile(r"(tree_map|tree\.map|tree_util\.tree_map|map_structure|multimap)$")
_REDUCES = re.compile(r"(^|\.)(pmean|psum|all_reduce|allreduce|all_reduce_sum|batch_reduce)$")
#: optax's functions that make updates of gradients
_OPTIMIZER = re.compile(
    r"optax\.(\w+\.)?(scale_by_\w+|adam\w*|sgd|noisy_sgd|rmsprop|adagrad|adadelta|adafactor|lion|lamb|lars|novograd|nadam\w*|"
    r"radam|yogi|sm3|fromage|adabelief|amsgrad|rprop|lbfgs|sign_sgd|optimistic_\w+|adan|muon|prodigy|sophia)$"
)
_LONG = 12  #: events of gradients that are values
_RUNS = frozenset({"run", "experimental_run_v2", "call_for_each_replica"})
_APPLIES = frozenset({"apply_gradients", "apply"})  #: `apply` since Keras 3
_EVERY = Condition("MultiSteps", kind="every", text="`MultiSteps` has seen all passes")


def _made(one: Gradients, *events: Event, is_update: bool = False) -> Gradients:
    """Gradients after more has happened to them."""
    return Gradients(one.token, history=(*one.history, *events), is_one=one.is_one, is_update=one.is_update or is_update)


# ---- how they are made ---------------------------------------------------------------------------------------------------


def is_derivative(name: str) -> bool:
    """Whether a function makes one that returns gradients: ``jax.value_and_grad``."""
    return _DERIVATIVE.search(name) is not None


def differentiated(machine: Machine, made: Made, given: Call) -> Value:
    """The result of ``jax.value_and_grad(loss)(params)``."""
    of = given.get(0)
    loss = made.args[0] if made.args else None
    scaler = ""
    if isinstance(loss, Function):
        result = machine.enter(loss, given.args, given.given, given.node)
        first = result.items[0] if isinstance(result, Tuple) and result.items else result
        scaler = scaled_by(first)[len(SCALED) :]
    params = Params(unseen=frozenset({of.token})) if of is not None else UNKNOWN
    event = Backward(**machine.about(given.node), params=params, scaler=scaler)
    grads = Gradients(machine.fresh(given.node, "grads", len(machine.taken)), history=(event,))
    rest = Thing((*grads.token, "value"), frozenset({"varies"}))
    if "value_and" in made.name:
        return Tuple((), items=(rest, grads))
    aux = made.given.get("has_aux")
    return Tuple((), items=(grads, rest)) if isinstance(aux, Constant) and aux.value else grads


def _of_tape(machine: Machine, given: Call) -> Value | None:
    """``tape.gradient(loss, variables)``."""
    loss, of = given.get(0, "target"), given.get(1, "sources")
    if loss is None or of is None:
        return None
    event = Backward(**machine.about(given.node), params=parameters(of), scaler=scaled_by(loss)[len(SCALED) :])
    return Gradients(machine.fresh(given.node, "grads", len(machine.taken)), history=(event,))


# ---- what clips them -----------------------------------------------------------------------------------------------------


def clip(machine: Machine, native: Native, given: Call) -> Value | None:
    """``tf.clip_by_global_norm(grads, limit)``; None for a call that clips no gradients."""
    of = given.args[0] if given.args else next(iter(given.given.values()), None)
    if isinstance(of, Tuple):
        of = _among(of.items) or of
    of = _taken_for(of)
    if of is None or not native.dialect:
        return None
    event = _clip(native, limit_of(native, given), of, **machine.about(given.node))
    made = _made(of if len(of.history) < _LONG else Gradients(of.token), event)
    made.after = len(machine.taken)
    machine.changes.append(made)
    return Tuple((), items=(made, Thing((*made.token, "norm"), frozenset({"norm"})))) if native.returns_pair else made


def limit_of(native: Native, given: Call) -> Value | None:
    """The limit that a call gives a native."""
    return given.get(list(native.signature.parameters).index(native.limit), native.limit)


def _taken_for(of: Value | None) -> Gradients | None:
    """Gradients, also those of which only their clip says that they are some."""
    if isinstance(of, Gradients):
        return of
    return Gradients(of.token) if isinstance(of, Thing) and of.token else None


def _whose(of: Gradients) -> Params:
    """The parameters of gradients, or what identifies gradients whose origin is not known."""
    backward = of.backward
    return backward.params if backward is not None else Params(unseen=frozenset({of.token}))


def _clip(native: Native, limit: Value | None, of: Gradients, **about: Any) -> Clip:
    kinds = {Scope.VALUE: "value", Scope.GLOBAL: "norm"}
    kind = kinds.get(native.rule().scope, "each") if native.dialect else "norm"
    return Clip(**about, returns=True, params=_whose(of), kind=kind, limit=number_of(limit), is_late=of.is_update)


def _is_clip(link: Value) -> Native | None:
    """The native of a transformation of a chain."""
    if not isinstance(link, Made):
        return None
    native = BY_NAME.get(link.name)
    if native is None and link.name.endswith("gradient_transformation"):
        return next(x for x in BY_NAME.values() if x.names[0] == "optax.clip_by_global_norm")
    return native if native is not None and native.kind is Kind.OBJECT and native.framework == "optax" else None


def _limit(link: Made) -> Value | None:
    """The limit of a transformation, also of one that has a rule of gradclip's."""
    first = link.args[0] if link.args else None
    return first.args[0] if isinstance(first, Made) and first.args else first


def _links(made: Value) -> Iterator[Value]:
    """The transformations of a chain, in order."""
    if isinstance(made, Made) and made.name.rpartition(".")[2] in ("chain", "named_chain"):
        for link in (*made.args, *(x for _, x in sorted(made.given.items()))):
            part = link.items[-1] if isinstance(link, Tuple) and link.items else link
            yield from _links(part)
    else:
        yield made


def _updated(machine: Machine, owner: Value, of: Gradients, given: Call) -> Value:
    """``transformation.update(grads, state, params)``."""
    result = of
    for link in _links(owner):
        native = _is_clip(link)
        if native is not None and isinstance(link, Made) and link.node is not None:
            about = {**machine.about(given.node), "where": link.where, "text": link.text}
            event = _clip(native, _limit(link), result, **about)
            result = _made(result, event)
            if event.is_late:
                machine.taken.append(result.history)
            else:
                machine.changes.append(result)
        elif isinstance(link, Made) and link.name.endswith(("multi_transform", "partition")) and link.args:
            result = _parted(machine, link, result, given)
        elif isinstance(link, Made) and link.name.endswith("MultiSteps") and link.args:
            result = _accumulated(machine, link.args[0], result, given)
        elif (isinstance(link, Made) and _OPTIMIZER.match(link.name)) or not isinstance(link, Made):
            result = _stepped(machine, link, result, given)
    return Tuple((), items=(result, Thing((*of.token, "state"))))


def _accumulated(machine: Machine, inner: Value, of: Gradients, given: Call) -> Gradients:
    """``MultiSteps(inner)``: the inner transformation gets the mean of several passes."""
    outer = [x for x in of.history if isinstance(x, Clip)]
    again = Gradients(of.token, history=(*of.history, *of.history) if outer else of.history)
    before = len(machine.conditions)
    machine.conditions.append(_EVERY)
    made = _updated(machine, inner, again, given)
    del machine.conditions[before:]
    return made.items[0] if isinstance(made, Tuple) and isinstance(made.items[0], Gradients) else of


def _parted(machine: Machine, link: Made, of: Gradients, given: Call) -> Gradients:
    """``multi_transform({"body": adam, "head": set_to_zero()}, labels)``: a transformation for each part."""
    parts = link.args[0].items if isinstance(link.args[0], Table) else {}
    tokens = {name: (*of.token, str(name)) for name in parts}
    whole = Params.of(*tokens.values())
    history = tuple(replace(x, params=whole) for x in of.history)
    frozen = {name for name, part in parts.items() if isinstance(part, Made) and part.name.endswith("set_to_zero")}
    for name, part in parts.items():
        for one in _links(part):
            native = _is_clip(one)
            if native is not None and isinstance(one, Made):
                about = {**machine.about(given.node), "where": one.where, "text": one.text}
                event = _clip(native, _limit(one), of, **about)
                history = (*history, replace(event, params=Params.of(tokens[name])))
    stepped = Params.of(*(token for name, token in tokens.items() if name not in frozen)) if parts else UNKNOWN
    step = Step(**machine.about(given.node), params=stepped, optimizer=link.token)
    machine.taken.append((*history, step))
    return _made(of, step, is_update=True)


def _stepped(machine: Machine, owner: Value, of: Gradients, given: Call) -> Gradients:
    """An optimizer takes gradients; those that it has made itself it does not take again."""
    if of.is_update:
        return of
    if isinstance(owner, Thing) and owner.token[-1:] == ("optimizer",) and machine.file.compiled is not None:
        owner = machine.file.compiled  # self.optimizer of a Keras model
    passes = owner.given.get("gradient_accumulation_steps") if isinstance(owner, Made) else None
    if passes is not None and not _is_off(passes) and any(isinstance(x, Clip) for x in of.history):
        of = Gradients(of.token, history=(*of.history, *of.history))
        machine.conditions.append(replace(_EVERY, text="`gradient_accumulation_steps` passes are done"))
        made = _taken_by(machine, owner, of, given)
        machine.conditions.pop()
        return made
    return _taken_by(machine, owner, of, given)


def _taken_by(machine: Machine, owner: Value, of: Gradients, given: Call) -> Gradients:
    about = machine.about(given.node)
    params, history = _whose(of), of.history
    if machine.replicas and not any(isinstance(x, Reduce) for x in history) and not _keeps_apart(given):
        history = (*history, Reduce(**about, params=params))
    step = Step(**about, params=params, optimizer=owner.token, clip=_own(owner))
    machine.taken.append((*history, step))
    return _made(of, step, is_update=True)


def _own(owner: Value) -> str:
    """The clip that an optimizer of Keras has itself, as it is shown; "" if it has none."""
    if not isinstance(owner, Made):
        return ""
    if owner.name.startswith("gradclip") and owner.name.endswith("clipped"):
        return owner.text
    keywords = [native.keyword for native in KEYWORDS.get(owner.name, ())]
    on = [x for x in keywords if x in owner.given and not _is_off(owner.given[x])]
    return f"{owner.text} with `{on[0]}`" if on else ""


def _is_off(value: Value) -> bool:
    return isinstance(value, Constant) and not value.value


def _keeps_apart(given: Call) -> bool:
    """``experimental_aggregate_gradients=False`` or ``skip_gradients_aggregation=True``: the program has summed."""
    names = {"experimental_aggregate_gradients": False, "skip_gradients_aggregation": True}
    return any(isinstance(x := given.given.get(name), Constant) and x.value is value for name, value in names.items())


def mapped(machine: Machine, target: Value, args: Sequence[Value], given: Call) -> Value:
    """A function applied to each gradient."""
    one = _among(args)
    if one is None:
        return Thing(machine.fresh(given.node, "tree"))
    element = Gradients(one.token, history=one.history, is_one=True, is_update=one.is_update)
    made = machine.apply(target, Call(given.node, tuple(element if x is one else x for x in args), {}))
    return Gradients(made.token, history=made.history, is_update=one.is_update) if isinstance(made, Gradients) else one


# ---- functions and methods -----------------------------------------------------------------------------------------------


def function(machine: Machine, name: str, given: Call) -> Value | None:
    """The result of a library's function of gradients; None if nothing is known of it."""
    first = given.get(0)
    if is_derivative(name) and isinstance(first, (Function, Bound, Thing)) and "torch" not in name:
        return Made((name, *first.token), name=name, args=given.args, given=dict(given.given), node=given.node)
    if _MAPS.search(name) and first is not None:
        return mapped(machine, first, given.args[1:], given)
    grads = _among(given.args)
    if grads is None:
        return None
    if _REDUCES.search(name):
        made = _made(grads, Reduce(**machine.about(given.node), params=_whose(grads)))
        if any(isinstance(x, Clip) for x in grads.history):  # in any program, whatever takes them
            machine.taken.append(made.history)
        return made
    if name.endswith("apply_updates"):
        if not grads.is_update:
            _stepped(machine, Library((name,), name=name), grads, given)
        return Thing((*grads.token, "params"))
    if name.rpartition(".")[2] in ("cast", "convert_to_tensor", "stop_gradient", "device_get", "asarray", "identity"):
        return grads
    return None


def method(machine: Machine, owner: Value, name: str, given: Call) -> Value | None:
    """The result of a method that takes or makes gradients; None if nothing is known of it."""
    if name == "gradient":
        return _of_tape(machine, given)
    first = given.get(0)
    if name in ("get_scaled_loss", "scale_loss") and first is not None and _scales(owner, name):
        text = machine.shown(given.node)[1:-1]
        return Thing((*first.token, "scaled"), first.marks | {f"{SCALED}{text}"})
    if name in _RUNS and isinstance(first, (Function, Bound)):
        inner = given.get(1, "args")
        machine.replicas += 1
        made = machine.apply(first, Call(given.node, inner.items if isinstance(inner, Tuple) else (), {}))
        machine.replicas -= 1
        return made
    grads = _among((*given.args, *given.given.values()))
    if grads is None and name == "update" and first is not None and _is_clip(owner) is not None:
        grads = _taken_for(first)
    if grads is None and name in _APPLIES and isinstance(first, Thing) and first.token[:1] == ("zip",):
        grads = Gradients(tuple(first.token[1:]))
    if grads is None:
        return None
    if name in ("get_unscaled_gradients", "unscale_gradients"):
        return _made(grads, Unscale(**machine.about(given.node), params=UNKNOWN))
    if name == "update":
        return _updated(machine, owner, grads, given)
    if name in _APPLIES:
        tx = owner.given.get("tx") if isinstance(owner, Made) else None
        if tx is not None:
            _updated(machine, tx, grads, given)
        else:
            _stepped(machine, owner, grads, given)
        return owner
    if name in _MAPS_OF_GRADIENTS:
        return grads
    return None


_MAPS_OF_GRADIENTS = frozenset({"astype", "numpy", "copy", "reshape", "all_reduce", "reduce"})


def _among(values: Sequence[Value]) -> Gradients | None:
    """The first gradients among some values."""
    return next((x for x in values if isinstance(x, Gradients)), None)


def _scales(owner: Value, name: str) -> bool:
    """Whether an optimizer scales the loss: Keras 3's ``scale_loss`` does so only in a ``LossScaleOptimizer``."""
    return name == "get_scaled_loss" or (isinstance(owner, Made) and owner.name.endswith("LossScaleOptimizer"))
