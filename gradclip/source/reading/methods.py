"""What the methods of libraries' objects do to gradients: of models, optimizers, scalers, trainers, and containers."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gradclip.source.reading import elements, functional, gradients, handlers, hooks, limits, modules, scales, slots, taken
from gradclip.source.reading.values import (
    MOST,
    SCALED,
    Bound,
    Call,
    Constant,
    Context,
    Elements,
    Function,
    Gradients,
    Instance,
    Library,
    Made,
    Table,
    Thing,
    Tuple,
    Value,
    marks,
    scaled_by,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["apex", "method", "same"]

#: methods that return their object, or a model with the same parameters
_SELF = re.compile(
    r"to|cuda|cpu|train|eval|float|half|double|bfloat16|requires_grad_|share_memory|mean|sum|apply|compile|type|contiguous|clone|"
    r"unwrap_model|copy|view|squeeze|gradient_transformation"
)
_PARTS = frozenset({"children", "named_children", "modules", "named_modules", "sublayers", "named_sublayers"})
_PREPARES = frozenset({"prepare", "setup", "initialize", "prepare_model"})
_CLIP_METHODS = frozenset({"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_gradients", "clip_grads"})
_LIMITS = ("max_norm", "clip_value", "clip_norm", "max_grad_norm", "gradient_clip_val", "value", "norm")


def method(machine: Machine, owner: Value, name: str, given: Call) -> Value | None:
    """The result of a method of an object that the project does not define; None if nothing is known of it."""
    first = given.get(0)
    if isinstance(owner, Elements) and (made := elements.on_elements(machine, owner, name, given)) is not None:
        return made
    if (made := functional.method(machine, owner, name, given)) is not None:
        return made
    if name == "scale_loss" and len(given.args) > 1:
        return apex(name, given.args[0])
    if name in ("all_reduce", "all_reduce_coalesced", "allreduce") and first is not None:
        gradients.reduce(machine, first, given)
        return Constant(("None",))
    if name in ("parameters", "named_parameters", "trainable_parameters"):
        is_new = isinstance(getattr(given.node.func, "value", None), ast.Call)  # nn.ModuleList([a, b]).parameters()
        params = modules.parts(machine, owner, gradients.of_module(owner), is_new=is_new)
        return Elements(
            (*owner.token, "parameters"),
            params=params,
            is_exempt="need_clip" in machine.scope.file.text and slots.is_exempt(machine, owner),
        )
    if name in _PARTS and not given.args:
        return Thing((*owner.token, f"{name}()"), frozenset({"open"}))
    if name == "values" and "state" in owner.marks:
        return owner
    if name == "state_dict":
        return Elements((*owner.token, name), frozenset({"state"}), params=gradients.of_module(owner))
    if name in ("sub_", "add_") and isinstance(owner, Elements) and isinstance(first, Gradients):  # p.sub_(rate * g)
        taken.stepped(machine, Library(("by hand",), name="by hand"), first, given)
        return owner
    if name in ("backward", "manual_backward"):
        return gradients.backward(machine, first if first is not None and not _is_loss(owner) else owner, given)
    if name == "step":
        return _step(machine, owner, given)
    if name == "minimize" and first is not None and (scales.is_scaler(owner) or gradients.is_optimizer(machine, owner)):
        return _minimize(machine, owner, first, given)
    if name in ("zero_grad", "clear_grad", "clear_gradients"):
        return gradients.zero(machine, owner, given)
    if name in ("unscale_", "unscale_gradients"):
        return gradients.unscale(machine, first, given)
    if name == "scale" and scales.is_scaler(owner) and first is not None:
        text = machine.shown(given.node.func.value) if hasattr(given.node.func, "value") else ""
        return Thing((*first.token, "scaled"), first.marks | {f"{SCALED}{text.strip('`')}"})
    if name in _CLIP_METHODS:
        return _clip_method(machine, owner, name, given)
    if name == "register_post_accumulate_grad_hook" and isinstance(first, (Function, Bound)) and first not in machine.hooks:
        machine.hooks.append(first)
    if name in ("register_step_pre_hook", "register_step_post_hook") and isinstance(first, (Function, Bound)):
        machine.around.setdefault((owner.token, "post" in name), []).append(first)
    if name == "register_hook" and isinstance(one := getattr(first, "function", first), Function):
        hooks.hook(machine, owner, one, given)
    if name == "add_argument":
        limits.declared(machine, given)
    if name == "compile" and (optimizer := given.get(0, "optimizer")) is not None:
        if isinstance(optimizer, Made):
            machine.file.compiled = optimizer
        slots.compiled(machine, owner, optimizer, given)
        slots.stepped_without(machine, optimizer, machine.shown(given.node))
    if name == "optimizers" and isinstance(owner, Instance) and (made := machine.method(owner, "configure_optimizers")):
        return _optimizers(machine.enter(made, (), {}, given.node, owner))
    if name == "requires_grad_":
        modules.freeze(machine, gradients.of_module(owner), given.get(0, "requires_grad") or Constant((), value=True))
    if name in ("add_module", "register_module") and isinstance(first, Constant) and len(given.args) > 1:
        modules.replace_part(machine, owner, str(first.value), given.args[1])
    if name == "no_sync" and not given.args:  # with an argument it may be off
        return Context((*owner.token, name), kind="local", said=frozenset(machine.conditions))
    if name == "accumulate":
        return Context((*owner.token, name), kind="accumulate", text=machine.shown(given.node.func)[1:-1], inner=owner)
    if name == "get_config" and isinstance(owner, Made):
        return Table(machine.fresh(given.node, "table"), items=dict(owner.given.items()))
    if name in _PREPARES:
        return same(given) if given.args else None
    if name == "add_param_group" and isinstance(owner, Made) and first is not None:
        owner.args = (Tuple((), items=(*owner.args[:1], first)), *owner.args[1:])
        return Constant(("None",))
    if _SELF.fullmatch(name) and not isinstance(owner, Gradients):
        return owner
    return _of_container(owner, name, given)


def _optimizers(made: Value) -> Value:
    """What ``self.optimizers()`` returns for the result of ``configure_optimizers``."""
    if isinstance(made, Tuple) and made.items and isinstance(made.items[0], Tuple):  # beside schedulers
        made = made.items[0]
    return made.items[0] if isinstance(made, Tuple) and len(made.items) == 1 else made


def _is_loss(owner: Value) -> bool:
    """Whether ``owner.backward(x)`` is a loss with a gradient, not a library's object with a loss."""
    return bool(scaled_by(owner))


def _step(machine: Machine, owner: Value, given: Call) -> Value | None:
    first = given.args[0] if given.args else given.given.get("optimizer")
    if scales.is_scaler(owner) and first is not None:
        text = machine.shown(given.node.func.value).strip("`") if hasattr(given.node.func, "value") else "scaler"
        return gradients.step(machine, first, given, scaler=text)
    if gradients.is_optimizer(machine, owner):
        return gradients.step(machine, owner, given)
    return None


def _minimize(machine: Machine, owner: Value, first: Value, given: Call) -> Value:
    """``optimizer.minimize(loss, variables)`` computes gradients that are values; Paddle's takes those of ``backward()``."""
    of = given.get(1, "var_list")
    if scales.is_scaler(owner):
        return _step(machine, owner, given) or owner
    if of is None or "paddle" in getattr(owner, "name", ""):
        return gradients.step(machine, owner, given)
    return functional.minimized(machine, owner, first, of, given)


def _clip_method(machine: Machine, owner: Value, name: str, given: Call) -> Value:
    """A clip by a method: of Accelerate, of Fabric, of Lightning's module, of a model in FSDP."""
    values = [x for x in given.args if not isinstance(x, Constant)]
    if name == "clip_gradients":
        optimizer = next((x for x in values if gradients.is_optimizer(machine, x)), None)
        tensors: Value | None = Elements((), params=gradients.of_optimizer(optimizer)) if optimizer is not None else None
        limit = next((given.given[x] for x in _LIMITS if x in given.given), None)
        return gradients.clip(machine, tensors, limit, given)
    written = given.written(1, *_LIMITS)
    is_model = not values or (len(given.args) == 1 and not isinstance(values[0], (Elements, Tuple)))
    if is_model and not isinstance(owner, (Elements, Tuple)):  # model.clip_grad_norm_(1.0)
        return gradients.clip(machine, Elements((), params=gradients.of_module(owner)), given.get(0, *_LIMITS), given)
    gradients.unscale(machine, None, given)
    return gradients.clip(machine, given.get(0, "parameters"), given.get(1, *_LIMITS), given, written=written)


def _of_container(owner: Value, name: str, given: Call) -> Value | None:
    first = given.get(0)
    if isinstance(owner, Tuple) and first is not None and name in ("append", "extend"):
        more = first.items if name == "extend" and isinstance(first, Tuple) else (first,)
        owner.items = (*owner.items, *more)[:MOST]
        owner.marks |= marks(more)
        return Constant(("None",))
    if isinstance(owner, Table):
        if name in ("values", "items"):
            pairs = [
                x if name == "values" else Tuple((), items=(Constant((key,), value=key), x)) for key, x in owner.items.items()
            ]
            return Tuple((), items=tuple(pairs))
        if name == "get" and isinstance(first, Constant) and first.value in owner.items:
            return owner.items[first.value]
        if name == "pop" and isinstance(first, Constant):
            return owner.items.pop(first.value, None)
        if name == "setdefault" and isinstance(first, Constant):
            return handlers.default(owner, first.value, given.get(1))
        if name == "update" and isinstance(first, Table):
            owner.items.update(first.items)
            return Constant(("None",))
    if isinstance(owner, Instance) and name == "children":
        return Thing((*owner.token, name))
    return None


def apex(name: str, loss: Value) -> Context:
    """``with amp.scale_loss(loss, optimizer) as scaled:``."""
    mark = frozenset({f"{SCALED}{name}(...)"})
    return Context((name,), kind="scaled", inner=Thing((*loss.token, "scaled"), mark))


def same(given: Call) -> Value:
    """``a, b = prepare(a, b)``."""
    values = (*given.args, *(x for name, x in given.given.items() if name in ("models", "optimizers", "model", "optimizer")))
    return values[0] if len(values) == 1 else Tuple((), items=tuple(values))
