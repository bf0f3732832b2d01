"""Gradients that are values: TensorFlow's tapes, JAX, optax, Keras. Each has its history, which is a round at a step."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gradclip.natives import Native
from gradclip.rounds import UNKNOWN, Backward, Clip, Params, Reduce, Step, Unscale
from gradclip.source.reading import coefficients, control, elements, limits, measures, transformations
from gradclip.source.reading.program import last
from gradclip.source.reading.taken import added, after, assigned, changed, clip_by, element, gathered, paired, stepped, whose
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

__all__ = ["clip", "decorated", "differentiated", "function", "is_derivative", "mapped", "method", "minimized", "of_source"]

_DERIVATIVE = re.compile(r"(^|\.)(filter_)?(value_and_)?grad$")
_MAPS = re.compile(r"(tree_map|tree\.map|tree_util\.tree_map|map_structure|multimap)$")
_REDUCES = re.compile(r"(^|\.)(pmean|psum|all_reduce|allreduce|all_reduce_sum|batch_reduce)$")
_DYNAMIC_SCALE = "flax.training.dynamic_scale.DynamicScale.value_and_grad"
_FLAX = frozenset({"value_and_grad", "create", "replace"})
_PAIR = frozenset({"pair"})  #: the mark of gradients and their norm
_OF_ALL = re.compile(r"global_?norm", re.IGNORECASE)
_LONG = 12  #: events of gradients that are values
_RUNS = frozenset({"run", "experimental_run_v2", "call_for_each_replica"})
_APPLIES = frozenset({"apply_gradients", "apply", "stateless_apply"})  #: the last two since Keras 3


# ---- how they are made ---------------------------------------------------------------------------------------------------


def is_derivative(name: str) -> bool:
    """Whether a function makes one that returns gradients: ``jax.value_and_grad``."""
    return _DERIVATIVE.search(name) is not None


def differentiated(machine: Machine, made: Made, given: Call) -> Value:
    """The result of ``jax.value_and_grad(loss)(params)``."""
    of = given.get(0)
    loss = made.args[0] if made.args else None
    scaler, factors = "", frozenset[object]()
    if isinstance(loss, (Function, Bound)):
        result = machine.apply(loss, given)
        first = result.items[0] if isinstance(result, Tuple) and result.items else result
        scaler, factors = scaled_by(first)[len(SCALED) :], coefficients.factors(first)
    params = Params(unseen=frozenset({of.token})) if of is not None else UNKNOWN
    about = machine.about(given.node)
    event = Backward(**about, params=params, scaler=scaler)
    token = machine.fresh(given.node, "grads", len(machine.taken))
    local = of.marks & {coefficients.LOCAL} if of is not None else frozenset[str]()
    grads = Gradients(token, local, history=(event,), factors=factors)
    rest = Thing((*grads.token, "value"), frozenset({"varies"}))
    if made.name == _DYNAMIC_SCALE:  # it returns unscaled gradients
        grads = after(grads, *((Reduce(**about, params=params),) if "axis_name" in made.given else ()))
        finite = Thing((*grads.token, "finite"), frozenset({"varies", "finite"}))
        return Tuple((), items=(made.args[1], finite, rest, grads))
    if "value_and" in made.name:
        return Tuple((), items=(rest, grads))
    aux = made.given.get("has_aux")
    return Tuple((), items=(grads, rest)) if isinstance(aux, Constant) and aux.value else grads


def decorated(machine: Machine, function: Function, made: Value) -> Value:
    """A function of the project, or its method, after its decorators: ``@jax.value_and_grad``."""
    for decorator in reversed(getattr(function.node, "decorator_list", ())):
        given = decorator.keywords if isinstance(decorator, ast.Call) else []
        is_partial = isinstance(decorator, ast.Call) and last(decorator.func) == "partial" and decorator.args
        name = last(decorator.args[0] if is_partial else getattr(decorator, "func", decorator))
        if name == "shard_map" and isinstance(made, Function):
            made = replace(made, specs=next((machine.value(x.value) for x in given if x.arg == "in_specs"), None))
        if is_derivative(name):
            known = {x.arg: machine.value(x.value) for x in given if x.arg is not None}
            made = Made(function.token, name=name, args=(made,), given=known)
    return made


def of_source(machine: Machine, given: Call) -> Value | None:
    """``tape.gradient(loss, variables)``, ``tf.gradients(loss, variables)``, ``torch.autograd.grad(loss, parameters)``."""
    loss, of = given.get(0, "target", "ys", "loss", "outputs"), given.get(1, "sources", "xs", "var_list", "inputs")
    if loss is None or (of is None and last(given.node.func) != "compute_gradients"):
        return None
    of = of if of is not None else machine.thing(given.node, "variables")
    made = _nested(of, lambda part: _gradients_of(machine, loss, part, given))
    return made if made is not None else _gradients_of(machine, loss, of, given)


def _nested(of: Value, make: Callable[[Value], Value]) -> Value | None:
    """For a list or a dictionary of lists of variables, as many gradients: ``tape.gradient(loss, [of_body, of_head])``."""
    if isinstance(of, Tuple) and of.items and all(isinstance(x, Elements) and not x.is_one for x in of.items):
        return Tuple((), items=tuple(make(x) for x in of.items))
    if isinstance(of, Table) and of.items and all(isinstance(x, Elements) and not x.is_one for x in of.items.values()):
        return Table((), items={key: make(x) for key, x in of.items.items()})
    return None


def _gradients_of(machine: Machine, loss: Value, of: Value, given: Call) -> Gradients:
    scaler = scaled_by(loss)[len(SCALED) :]
    event = Backward(**machine.about(given.node), params=parameters(of), loss=loss.token, scaler=scaler)
    token = machine.fresh(given.node, "grads", (len(machine.taken), of.token))
    return Gradients(token, history=(event,), sources=of.token, factors=coefficients.factors(loss))


def minimized(machine: Machine, owner: Value, loss: Value, of: Value, given: Call) -> Value:
    """``optimizer.minimize(loss, variables, tape)``: it takes gradients of its own, and no others of this loss."""
    params = parameters(of)
    known = (made.backward for made in reversed(machine.changes))
    same = next((x for x in known if x is not None and params.known and x.params == params), None)
    event = same or Backward(**machine.about(given.node), params=params, scaler=scaled_by(loss)[len(SCALED) :])
    stepped(machine, owner, Gradients(machine.fresh(given.node, "grads"), history=(event,)), given)
    return owner


# ---- what clips them -----------------------------------------------------------------------------------------------------


def clip(machine: Machine, native: Native, given: Call) -> Value | None:
    """``tf.clip_by_global_norm(grads, limit)``; None for a call that clips no gradients."""
    of = given.args[0] if given.args else next(iter(given.given.values()), None)
    if isinstance(of, Tuple):
        of = _among(of.items) or of
    if machine.is_callback and isinstance(of, Elements):
        of = Gradients(of.token)
    of = _taken_for(of)
    if of is None or not native.dialect:
        return None
    for x in (*given.args, *given.given.values()):
        if x is not of and isinstance(x, coefficients.Norm) and x is not given.given.get("use_norm"):
            measures.for_limit(machine, x)
    event = clip_by(native, of, **machine.about(given.node), **limits.of_native(machine, native, given, of.factors))
    known = given.given.get("use_norm")
    passes = known.of if isinstance(known, coefficients.Norm) and of.backward is not None else frozenset()
    event = replace(event, has_norm=known is not None, is_stale=any(id(of.backward) not in x for x in passes))
    if event.kind == "each":
        event = replace(event, as_all=_as_all(machine, given.args[1:]))
    made = changed(machine, of if len(of.history) < _LONG else Gradients(of.token), event)
    norm = Thing((*made.token, "norm"), frozenset({"norm"}))
    return Tuple((), _PAIR, items=(made, norm)) if native.returns_pair else made


def _as_all(machine: Machine, limits: Sequence[Value]) -> str:
    """What says that the limit of a clip is one of the norm of all gradients: a test, or the name of a function."""
    if any(x.token in machine.above for x in limits):
        return "its limit is compared with the norm of all"
    names = (getattr(x, "name", "") for x in machine.stack)
    return next((f"`{x}` is called by one norm of all" for x in names if _OF_ALL.search(x)), "")


def _taken_for(of: Value | None) -> Gradients | None:
    """Gradients, also those of which only their clip says that they are some."""
    if isinstance(of, Gradients):
        return of
    return Gradients(of.token) if isinstance(of, Thing) and of.token else None


def mapped(machine: Machine, target: Value, args: Sequence[Value], given: Call) -> Value:
    """A function applied to each gradient."""
    one = _among(args)
    if one is None:
        return _each(args, lambda part: mapped(machine, target, [part], given)) or Thing(machine.fresh(given.node, "tree"))
    elements = tuple(element(x) if isinstance(x, (Gradients, Table, Tuple)) else x for x in args)
    made = machine.apply(target, Call(given.node, elements, {}))
    if isinstance(made, Gradients):
        return replace(made, is_one=one.is_one)
    several = [x for x in args if isinstance(x, Gradients)]  # tree.map(jnp.add, sums, grads)
    return coefficients.summed(made) if isinstance(made, coefficients.Norm) else added(several)


def _each(args: Sequence[Value], change: Callable[[Value], Value | None]) -> Value | None:
    """A function of a tuple that has gradients beside other values: ``jax.lax.pmean((loss, grads), "devices")``."""
    first = args[0] if args else None
    if not isinstance(first, Tuple) or _among(first.items) is None:
        return None
    return Tuple(first.token, first.marks, items=tuple(change(x) or x if gathered(x) is not None else x for x in first.items))


# ---- functions and methods -----------------------------------------------------------------------------------------------


def function(machine: Machine, name: str, given: Call) -> Value | None:
    """The result of a library's function of gradients; None if nothing is known of it."""
    first = given.get(0)
    if is_derivative(name) and isinstance(first, (Function, Bound, Thing)) and "torch" not in name:
        return Made((name, *first.token), name=name, args=given.args, given=dict(given.given), node=given.node)
    if _MAPS.search(name) and first is not None:
        return mapped(machine, first, given.args[1:], given)
    if name.startswith("tensorflow.") and name.endswith(".gradients"):
        return of_source(machine, given)
    if (".lax." in name or name.endswith(".cond")) and (made := control.function(machine, name, given)) is not None:
        return made
    grads = _among(given.args)
    if grads is None:
        return _each(given.args, lambda one: function(machine, name, replace(given, args=(one, *given.args[1:]))))
    if _REDUCES.search(name):
        return _reduced(machine, grads, given)
    if name.endswith("apply_updates"):
        if not grads.is_update:
            stepped(machine, Library((name,), name=name), grads, given)
        return Thing(first.token if first is not None and first is not grads else (*grads.token, "params"))
    called = name.rpartition(".")[2]
    if (measured := coefficients.measured(machine, called, grads, given, name)) is not None:
        return measured
    if called == "clip" and (len(given.args) > 1 or given.given):  # jnp.clip(g, -limit, limit)
        return _clipped(machine, grads, 1, given)
    if called in ("minimum", "maximum") and (bounded := _bounded(machine, grads, called, given)) is not None:
        return bounded
    if called == "nan_to_num":
        return coefficients.mended(machine, grads, given)
    if called == "ravel_pytree":
        flat = replace(grads, marks=grads.marks | {coefficients.FLAT})
        return Tuple((), items=(flat, Library(("unflatten",), name="unflatten")))
    return coefficients.operated(machine, called, given)


def _clipped(machine: Machine, of: Gradients, place: int, given: Call) -> Gradients:
    """``jnp.clip(g, -limit, limit)``, ``g.clip(-limit, limit)``; ``place`` is that of the lower bound."""
    said = limits.between(machine, given, place)
    event = Clip(**machine.about(given.node), **said, returns=True, params=whose(of), kind="value", is_late=of.is_update)
    return changed(machine, of, event)


def _bounded(machine: Machine, of: Gradients, called: str, given: Call) -> Gradients | None:
    """``tf.minimum(g, limit)``: a bound on one side; with the other one after it a clip by value."""
    other = next((x for x in given.args if x is not of), None)
    if len(given.args) != 2 or other is None or number_of(other) == 0:
        return None
    side, before = called[:3], of.history[-1] if of.history else None
    if isinstance(before, Clip) and before.bound not in ("", side):
        return replace(of, history=(*of.history[:-1], replace(before, bound="")))
    said = {**limits.about(machine, other, given.written(1)), "bound": side}
    return changed(machine, of, Clip(**machine.about(given.node), **said, returns=True, params=whose(of), kind="value"))


def _reduced(machine: Machine, grads: Gradients, given: Call) -> Gradients:
    """``jax.lax.pmean(grads, "devices")``, ``context.all_reduce("mean", grads)``."""
    machine.reduces = True
    made = after(grads, Reduce(**machine.about(given.node), params=whose(grads)))
    made.marks -= {coefficients.LOCAL}
    if grads.is_update and any(isinstance(x, Clip) for x in grads.history):  # of each replica's own step
        machine.taken.append(
            (*(x for x in made.history if not isinstance(x, Step)), *(x for x in made.history if isinstance(x, Step)))
        )
    elif any(isinstance(x, Clip) for x in grads.history):  # in any program, whatever takes them
        machine.taken.append(made.history)
    return made


def method(machine: Machine, owner: Value, name: str, given: Call) -> Value | None:
    """The result of a method that takes or makes gradients; None if nothing is known of it."""
    if name in ("gradient", "compute_gradients"):
        return of_source(machine, given)
    first = given.get(0)
    if name in ("assign", "assign_add", "assign_sub") and first is not None:
        return assigned(machine, owner, name, given)
    if isinstance(owner, Gradients) and (made := _of_gradients(machine, owner, name, given)) is not None:
        return made
    if name in _FLAX and (made := _of_flax(machine, owner, name, given)) is not None:
        return made
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
    if grads is None and name in _APPLIES and (params := elements.given(machine, first)) is not None:  # Keras on PyTorch
        machine.emit(Step(**machine.about(given.node), params=params, optimizer=owner.token))
        return owner
    if grads is None:
        return None
    if name in ("get_unscaled_gradients", "unscale_gradients"):
        return after(grads, Unscale(**machine.about(given.node), params=UNKNOWN))
    if name == "update":
        return transformations.updated(machine, _transformation(owner), grads, given)
    if name in _APPLIES:
        tx = owner.given.get("tx") if isinstance(owner, Made) else None
        if tx is not None:
            transformations.updated(machine, tx, grads, given)
        else:
            stepped(machine, owner, paired(grads, given.args), given)
        return owner if name != "stateless_apply" else Tuple((), items=(given.args[-1], given.args[0]))
    return _reduced(machine, grads, given) if name in ("all_reduce", "reduce") else None


def _of_flax(machine: Machine, owner: Value, name: str, given: Call) -> Value | None:
    """The result of a method of flax's state of a training, or of its loss scale."""
    first = given.get(0)
    if name == "value_and_grad" and isinstance(first, (Function, Bound)):
        return Made((name, *first.token), name=_DYNAMIC_SCALE, args=(first, owner), given=dict(given.given))
    if name == "create" and "tx" in given.given:
        return Made(machine.fresh(given.node), name=name, args=given.args, given=dict(given.given), node=given.node)
    return owner if name == "replace" and isinstance(owner, Made) and "tx" in owner.given else None


def _of_gradients(machine: Machine, of: Gradients, name: str, given: Call) -> Value | None:
    """The result of a method of gradients: ``grads.items()``, ``g.clip(-limit, limit)``, ``g.astype(dtype)``."""
    if name in ("items", "values"):
        return of if name == "values" else replace(of, row=(Thing((*of.token, "key")), of))
    if name == "clip":
        return _clipped(machine, of, 0, given)
    return coefficients.measured(machine, name, of, given)


def _transformation(owner: Value) -> Value:
    """Optax's transformation that an object applies: ``nnx.Optimizer(model, tx)``."""
    held = Call(owner.node, owner.args, owner.given).get(1, "tx") if isinstance(owner, Made) and owner.node else None
    return held if isinstance(owner, Made) and held is not None and "nnx" in owner.name else owner


def _among(values: Sequence[Value]) -> Gradients | None:
    """The first gradients among some values."""
    return next((found for x in values if (found := gathered(x)) is not None), None)


def _scales(machine: Machine, owner: Value, name: str) -> bool:
    """Whether an optimizer scales the loss: Keras 3's ``scale_loss`` does so only in a ``LossScaleOptimizer``."""
    if name == "get_scaled_loss" or (isinstance(owner, Made) and owner.name.endswith("LossScaleOptimizer")):
        return True
    compiled = machine.file.compiled
    scales = machine.file.is_mixed or (isinstance(compiled, Made) and compiled.name.endswith("LossScaleOptimizer"))
    return scales and owner.token[-1:] == ("optimizer",)  # of a compiled model
