"""Gradients that are values: TensorFlow's tapes, JAX, optax, Keras. Each has its history, which is a round at a step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gradclip.natives import Native
from gradclip.rounds import UNKNOWN, Backward, Clip, Params, Reduce, Step, Unscale
from gradclip.source.reading import coefficients, limits, transformations
from gradclip.source.reading.program import last
from gradclip.source.reading.taken import added, after, changed, clip_by, paired, stepped, whose
from gradclip.source.reading.values import (
    SCALED,
    Bound,
    Call,
    Constant,
    Elements,
    Function,
    Gradients,
    Library,
    Made,
    Thing,
    Tuple,
    Value,
    parameters,
    scaled_by,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["clip", "differentiated", "function", "is_derivative", "mapped", "method"]

_DERIVATIVE = re.compile(r"(^|\.)(filter_)?(value_and_)?grad$")
_MAPS = re.compile(r"(tree_map|tree\.map|tree_util\.tree_map|map_structure|multimap)$")
_REDUCES = re.compile(r"(^|\.)(pmean|psum|all_reduce|allreduce|all_reduce_sum|batch_reduce)$")
_LONG = 12  #: events of gradients that are values
_RUNS = frozenset({"run", "experimental_run_v2", "call_for_each_replica"})
_APPLIES = frozenset({"apply_gradients", "apply"})  #: `apply` since Keras 3


# ---- how they are made ---------------------------------------------------------------------------------------------------


def is_derivative(name: str) -> bool:
    """Whether a function makes one that returns gradients: ``jax.value_and_grad``."""
    return _DERIVATIVE.search(name) is not None


def differentiated(machine: Machine, made: Made, given: Call) -> Value:
    """The result of ``jax.value_and_grad(loss)(params)``."""
    of = given.get(0)
    loss = made.args[0] if made.args else None
    scaler, factors = "", frozenset[object]()
    if isinstance(loss, Function):
        result = machine.enter(loss, given.args, given.given, given.node)
        first = result.items[0] if isinstance(result, Tuple) and result.items else result
        scaler, factors = scaled_by(first)[len(SCALED) :], coefficients.factors(first)
    params = Params(unseen=frozenset({of.token})) if of is not None else UNKNOWN
    event = Backward(**machine.about(given.node), params=params, scaler=scaler)
    grads = Gradients(machine.fresh(given.node, "grads", len(machine.taken)), history=(event,), factors=factors)
    rest = Thing((*grads.token, "value"), frozenset({"varies"}))
    if "value_and" in made.name:
        return Tuple((), items=(rest, grads))
    aux = made.given.get("has_aux")
    return Tuple((), items=(grads, rest)) if isinstance(aux, Constant) and aux.value else grads


def _of_tape(machine: Machine, given: Call) -> Value | None:
    """``tape.gradient(loss, variables)``, ``tf.gradients(loss, variables)``, ``optimizer.compute_gradients(loss)``."""
    loss, of = given.get(0, "target", "ys", "loss"), given.get(1, "sources", "xs", "var_list")
    if loss is None or (of is None and last(given.node.func) != "compute_gradients"):
        return None
    of = of if of is not None else machine.thing(given.node, "variables")
    event = Backward(**machine.about(given.node), params=parameters(of), scaler=scaled_by(loss)[len(SCALED) :])
    token = machine.fresh(given.node, "grads", len(machine.taken))
    return Gradients(token, history=(event,), sources=of.token, factors=coefficients.factors(loss))


# ---- what clips them -----------------------------------------------------------------------------------------------------


def clip(machine: Machine, native: Native, given: Call) -> Value | None:
    """``tf.clip_by_global_norm(grads, limit)``; None for a call that clips no gradients."""
    of = given.args[0] if given.args else next(iter(given.given.values()), None)
    if isinstance(of, Tuple):
        of = _among(of.items) or of
    of = _taken_for(of)
    if of is None or not native.dialect:
        return None
    event = clip_by(native, of, **machine.about(given.node), **limits.of_native(machine, native, given))
    known = given.given.get("use_norm")
    if isinstance(known, coefficients.Norm) and of.backward is not None and known.of - {of.token}:
        event = replace(event, is_stale=True)
    made = changed(machine, of if len(of.history) < _LONG else Gradients(of.token), event)
    return Tuple((), items=(made, Thing((*made.token, "norm"), frozenset({"norm"})))) if native.returns_pair else made


def _taken_for(of: Value | None) -> Gradients | None:
    """Gradients, also those of which only their clip says that they are some."""
    if isinstance(of, Gradients):
        return of
    return Gradients(of.token) if isinstance(of, Thing) and of.token else None


def mapped(machine: Machine, target: Value, args: Sequence[Value], given: Call) -> Value:
    """A function applied to each gradient."""
    one = _among(args)
    if one is None:
        return Thing(machine.fresh(given.node, "tree"))
    elements = tuple(replace(x, is_one=True) if isinstance(x, Gradients) else x for x in args)
    made = machine.apply(target, Call(given.node, elements, {}))
    if isinstance(made, Gradients):
        return replace(made, is_one=one.is_one)
    several = [x for x in args if isinstance(x, Gradients)]  # tree.map(jnp.add, sums, grads)
    return coefficients.summed(made) if isinstance(made, coefficients.Norm) else added(several)


def scanned(machine: Machine, given: Call) -> Value:
    """``jax.lax.scan(micro_batch, carry, batches)``: what its function does runs in several passes."""
    body, carry = given.args[0], given.args[1]
    machine.loops.append(id(given.node))
    made = machine.apply(body, Call(given.node, (carry, Thing(machine.fresh(given.node, "batch"))), {}))
    machine.loops.pop()
    parts = made.items if isinstance(made, Tuple) else (made,)
    inner = parts[0].items if parts and isinstance(parts[0], Tuple) else parts[:1]
    again = [replace(x, history=(*x.history, *x.history)) if isinstance(x, Gradients) else x for x in inner]
    first = Tuple((), items=tuple(again)) if parts and isinstance(parts[0], Tuple) else again[0] if again else made
    return Tuple((), items=(first, Thing(machine.fresh(given.node, "outputs"))))


# ---- functions and methods -----------------------------------------------------------------------------------------------


def function(machine: Machine, name: str, given: Call) -> Value | None:
    """The result of a library's function of gradients; None if nothing is known of it."""
    first = given.get(0)
    if is_derivative(name) and isinstance(first, (Function, Bound, Thing)) and "torch" not in name:
        return Made((name, *first.token), name=name, args=given.args, given=dict(given.given), node=given.node)
    if _MAPS.search(name) and first is not None:
        return mapped(machine, first, given.args[1:], given)
    if name.startswith("tensorflow.") and name.endswith(".gradients"):
        return _of_tape(machine, given)
    if name.endswith("lax.scan") and isinstance(first, (Function, Bound)) and len(given.args) > 1:
        return scanned(machine, given)
    grads = _among(given.args)
    if grads is None:
        return None
    if _REDUCES.search(name):
        return _reduced(machine, grads, given)
    if name.endswith("apply_updates"):
        if not grads.is_update:
            stepped(machine, Library((name,), name=name), grads, given)
        return Thing((*grads.token, "params"))
    called = name.rpartition(".")[2]
    if (measured := coefficients.measured(machine, called, grads, given)) is not None:
        return measured
    if called == "clip" and len(given.args) > 1:  # jnp.clip(g, -limit, limit)
        said = limits.about(machine, given.get(2, "max", "a_max"), given.written(2, "max", "a_max"))
        event = Clip(
            **machine.about(given.node), **said, returns=True, params=whose(grads), kind="value", is_late=grads.is_update
        )
        return after(grads, event)
    if called in ("cast", "convert_to_tensor", "stop_gradient", "device_get", "asarray", "identity"):
        return grads
    return None


def _reduced(machine: Machine, grads: Gradients, given: Call) -> Gradients:
    """``jax.lax.pmean(grads, "devices")``, ``context.all_reduce("mean", grads)``."""
    machine.reduces = True
    made = after(grads, Reduce(**machine.about(given.node), params=whose(grads)))
    if any(isinstance(x, Clip) for x in grads.history):  # in any program, whatever takes them
        machine.taken.append(made.history)
    return made


def method(machine: Machine, owner: Value, name: str, given: Call) -> Value | None:
    """The result of a method that takes or makes gradients; None if nothing is known of it."""
    if name in ("gradient", "compute_gradients"):
        return _of_tape(machine, given)
    first = given.get(0)
    if name in ("get_scaled_loss", "scale_loss") and first is not None and _scales(machine, owner, name):
        text = machine.shown(given.node)[1:-1]
        return Thing((*first.token, "scaled"), first.marks | {f"{SCALED}{text}"})
    if name in _RUNS and isinstance(first, (Function, Bound)):
        inner = given.get(1, "args")
        machine.replicas += 1
        made = machine.apply(first, Call(given.node, inner.items if isinstance(inner, Tuple) else (), {}))
        machine.replicas -= 1
        return made
    grads = _among((*given.args, *given.given.values()))
    if grads is None and name == "update" and first is not None and transformations.is_clip(owner) is not None:
        grads = _taken_for(first)
    if grads is None and name in _APPLIES and isinstance(first, Thing) and first.token[:1] == ("zip",):
        grads = Gradients(tuple(first.token[1:]))
    if grads is None and name in _APPLIES and isinstance(first, Elements) and "gradient" in first.marks:
        machine.emit(Step(**machine.about(given.node), params=first.params, optimizer=owner.token))
        return owner
    if grads is None:
        return None
    if name in ("get_unscaled_gradients", "unscale_gradients"):
        return after(grads, Unscale(**machine.about(given.node), params=UNKNOWN))
    if name == "update":
        return transformations.updated(machine, owner, grads, given)
    if name in _APPLIES:
        tx = owner.given.get("tx") if isinstance(owner, Made) else None
        if tx is not None:
            transformations.updated(machine, tx, grads, given)
        else:
            stepped(machine, owner, paired(grads, given.args), given)
        return owner
    if name in ("all_reduce", "reduce"):
        return _reduced(machine, grads, given)
    if name in _MAPS_OF_GRADIENTS:
        return grads
    return None


_MAPS_OF_GRADIENTS = frozenset({"astype", "numpy", "copy", "reshape"})


def _among(values: Sequence[Value]) -> Gradients | None:
    """The first gradients among some values."""
    return next((x for x in values if isinstance(x, Gradients)), None)


def _scales(machine: Machine, owner: Value, name: str) -> bool:
    """Whether an optimizer scales the loss: Keras 3's ``scale_loss`` does so only in a ``LossScaleOptimizer``."""
    if name == "get_scaled_loss" or (isinstance(owner, Made) and owner.name.endswith("LossScaleOptimizer")):
        return True
    return machine.file.is_mixed and owner.token[-1:] == ("optimizer",)  # of a compiled model
