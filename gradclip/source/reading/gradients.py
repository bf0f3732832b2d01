"""The events of gradients that parameters hold: backward, unscale, clip, step, zero. And whose parameters they are."""

from __future__ import annotations

import ast
import math
import re
from typing import TYPE_CHECKING

from gradclip.natives import Native
from gradclip.rounds import UNKNOWN, Backward, Clip, Condition, Params, Reduce, Step, Unscale, Zero
from gradclip.source.reading import coefficients, forward, limits, measures, modules, scales, slots
from gradclip.source.reading.values import (
    SCALED,
    Bound,
    Call,
    Constant,
    Elements,
    Function,
    Gradients,
    Instance,
    Made,
    Table,
    Thing,
    Tuple,
    Value,
    last_of,
    marks,
    name_of,
    parameters,
    scaled_by,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = [
    "backward",
    "clip",
    "dropped",
    "is_optimizer",
    "is_optimizer_class",
    "of_module",
    "of_optimizer",
    "reduce",
    "shares_modules",
    "step",
    "unscale",
    "zero",
]

_OPTIMIZER = re.compile(r"opt(im\w*|s|_\w+|\d*|(?-i:[A-Z])\w*)?$|solver|adam|sgd|rmsprop", re.IGNORECASE)
_SCHEDULER = re.compile(r"sched|warmup|swa|ema$|args|config|cfg", re.IGNORECASE)
_OPTIMIZERS = re.compile(
    r"(^|\.)(optim|optimizer|optimizers|optax)\.(\w+\.)*\w+$|(Adam\w*|SGD|RMSprop|Adagrad|LBFGS|Lion|Lamb|Adafactor)$"
)
_NO_OPTIMIZER = re.compile(r"sched|\.lr\.|swa_utils|\.clip|clipped$", re.IGNORECASE)
_ZERO = "Under ZeRO DeepSpeed's engine holds the gradients, and clips by `gradient_clipping` of its configuration."
_HAS_OWN = re.compile(
    r"requires_grad|\.grad\b[\w.]* *=[^=]|\.grad\.[\w.]*copy_"
)  #: code that gives copies gradients of their own
_NO_MODULE = re.compile(
    r"^(gymnasium|gym|numpy|argparse|logging|pathlib)\.|Attr$|\.initializers?\.|(^|\.)((Leaky|R)?ReLU6?|GELU|[CS]?ELU|SiLU|Mish|Hardswish|(Hard|Log)?(Sigmoid|[sS]oftmax|[tT]anh)|Soft(plus|sign)"
    r"|Flatten|Identity|\w*Dropout\w*|\w*Pool(ing)?\d?[dD])$"
)  #: what has no parameters, though it is made as a module is


# ---- whose parameters ----------------------------------------------------------------------------------------------------


def of_module(owner: Value) -> Params:
    """The parameters of a module."""
    if isinstance(owner, Tuple):
        return Params.joined(of_module(x) for x in owner.items)
    if isinstance(owner, Elements):
        return owner.params
    if isinstance(owner, Made):
        return Params(frozenset({owner.token}), is_all=not owner.is_open)
    if isinstance(owner, Instance):
        parts = (x for name, x in owner.fields.items() if name not in owner.late)
        made = (x for x in parts if isinstance(x, (Made, Instance)) and not is_optimizer(None, x))
        is_open = owner.is_open or any(x.token[: len(owner.token)] != owner.token and not _is_inside(owner, x) for x in made)
        return Params(frozenset({owner.token}), is_all=not is_open)
    if isinstance(owner, Constant):
        return UNKNOWN
    if "open" in owner.marks:  # it may have those of what it was made from
        return Params(unseen=frozenset({owner.token}))
    return Params(frozenset({owner.token})) if owner.token else UNKNOWN


def _is_inside(owner: Instance, part: Value) -> bool:
    """Whether an object's own class makes a part: ``self.head = initialized(nn.Linear(8, 1))``."""
    if not isinstance(part, Made) or part.is_open:
        return False
    return any(x is part.node for x in ast.walk(owner.of.node))


def of_optimizer(owner: Value | None) -> Params:
    """The parameters that an optimizer has."""
    if isinstance(owner, Instance) and owner.base is not None:
        owner = owner.base
    if isinstance(owner, Made):
        if owner.name.endswith("clipped") and owner.args:
            return of_optimizer(owner.args[0])
        given = next((owner.given[x] for x in ("params", "parameters") if x in owner.given), None)
        given = given if given is not None else (owner.args[0] if owner.args and "paddle" not in owner.name else None)
        if owner.args and isinstance(owner.args[0], (Elements, Tuple)):
            given = owner.args[0]
        found = parameters(given)
        is_told = found.is_certain and found.known  # an empty list has parameters that were not followed into it
        return found if is_told else Params.joined([found, Params(unseen=frozenset({owner.token}))])
    if isinstance(owner, Tuple):
        return Params.joined(of_optimizer(x) for x in owner.items)
    return Params(unseen=frozenset({owner.token})) if owner is not None and owner.token else UNKNOWN


def group(owner: Value | None, key: Value) -> Params | None:
    """The parameters of one of an optimizer's groups, by its number; None where it may be any of them."""
    listed = owner.args[0] if isinstance(owner, Made) and owner.args else None
    if owner is None:
        return UNKNOWN
    if not isinstance(listed, Tuple) or not isinstance(key, Constant) or not isinstance(key.value, int):
        return None
    groups = listed.items if any(isinstance(x, Table) for x in listed.items) else (listed,)
    return parameters(groups[key.value]) if -len(groups) <= key.value < len(groups) else None


def is_optimizer_class(name: str) -> bool:
    """Whether a library's function makes an optimizer."""
    return _OPTIMIZERS.search(name) is not None and _NO_OPTIMIZER.search(name) is None


def may_be_module(machine: Machine, one: Value) -> bool:
    """Whether an object may have parameters."""
    if isinstance(one, (Made, Instance)):
        return not isinstance(one, Made) or not (is_optimizer_class(one.name) or _NO_MODULE.search(one.name))
    if isinstance(one, Tuple):
        return any(may_be_module(machine, x) for x in one.items)
    return isinstance(one, Thing) and last_of(one) in machine.scope.file.modules


def shares_modules(machine: Machine, given: Call) -> bool:
    """Whether a call gets modules that have a name: ``Sequential(encoder)``, but not ``Sequential(Linear(2, 1))``."""
    pairs = [*zip(given.args, given.node.args, strict=False)]
    pairs += [(given.given[x.arg], x.value) for x in given.node.keywords if x.arg is not None and x.arg in given.given]
    known = [x for x, node in pairs if not _is_new(x, node)]
    rest = [x for x in (*given.args, *given.given.values()) if not any(x is y for y, _ in pairs)]
    return any(may_be_module(machine, x) for x in (*known, *rest))


def _is_new(one: Value, node: ast.expr) -> bool:
    """Whether an argument is made in its place, of nothing that has a name."""
    if isinstance(node, (ast.List, ast.Tuple)) and isinstance(one, Tuple) and len(node.elts) == len(one.items):
        return all(_is_new(x, inner) for x, inner in zip(one.items, node.elts, strict=True))
    inner = node.elt if isinstance(node, (ast.ListComp, ast.GeneratorExp)) else node
    return isinstance(inner, ast.Call) and not getattr(one, "is_open", True)


def is_optimizer(machine: Machine | None, owner: Value) -> bool:
    """Whether an object is an optimizer: by what made it; by its use and its name, if that is unknown."""
    if isinstance(owner, Made):
        return is_optimizer_class(owner.name) or owner.name.endswith("clipped")
    if isinstance(owner, Instance) and owner.base is not None:
        return True
    if not isinstance(owner, (Thing, Instance)) or not owner.token or machine is None:
        return False
    name = name_of(owner)
    known = name in machine.scope.file.optimizers or name in machine.file.optimizers
    return (known or _OPTIMIZER.search(name) is not None) and _SCHEDULER.search(name) is None


# ---- events --------------------------------------------------------------------------------------------------------------


def backward(machine: Machine, loss: Value | None, given: Call) -> Value:
    """``loss.backward()``."""
    scaler = scaled_by(loss)[len(SCALED) :] if loss is not None else ""
    scaler = scaler or scales.by_trainer(machine, given.node.func)
    params = forward.params(machine, loss.marks if loss is not None else ())
    event, local = machine.about(given.node), [x for x in machine.contexts if x.kind == "local"]
    event["tests"] = event["tests"].union(*(x.said for x in local))
    machine.factors = coefficients.factors(loss) if loss is not None else frozenset()
    machine.emit(Backward(**event, params=params, scaler=scaler, is_local=bool(local), is_again=bool(machine.again)))
    for one in machine.hooks:  # they may step at once
        machine.apply(one, Call(given.node, (Elements(machine.fresh(given.node, "parameter"), is_one=True),), {}))
    return Constant(("None",))


def step(machine: Machine, owner: Value, given: Call, scaler: str = "") -> Value:
    """``optimizer.step()``."""
    closure = given.get(0 if not scaler else 1, "closure")
    if isinstance(closure, (Function, Bound)):
        machine.again += 1
        machine.apply(closure, Call(given.node, (), {}))
        machine.again -= 1
    last = _in_last(machine)
    if last is None:
        return Constant(("None",))
    _hooked(machine, owner, given, is_after=False)
    event = machine.about(given.node)
    event["tests"] |= last
    own = f"`{owner.name.rpartition('.')[2]}(...)`" if isinstance(owner, Made) and slots.clips(owner) else ""
    slots.stepped_without(machine, owner, event["text"])
    listed, left_out = of_optimizer(owner), slots.exempt(machine, owner)
    params, late = modules.free(machine, listed), modules.left(machine, listed)
    is_sparse = isinstance(owner, Made) and "Sparse" in owner.name
    event |= {"optimizer": owner.token, "scaler": scaler, "clip": own, "is_sparse": is_sparse}
    machine.emit(Step(**event, params=params, exempt=left_out, late=late))
    _hooked(machine, owner, given, is_after=True)
    return Constant(("None",))


def _hooked(machine: Machine, owner: Value, given: Call, *, is_after: bool) -> None:
    """What ``optimizer.register_step_pre_hook`` runs before a step, or the other after it."""
    for one in machine.around.get((owner.token, is_after), ()):
        machine.apply(one, Call(given.node, (owner, Tuple(()), Table(())), {}))


def synced(machine: Machine, owner: Value) -> Value:
    """``accelerator.sync_gradients``: true in the last of several passes, in which its optimizers step."""
    is_accumulating = not isinstance(owner, Made) or any(x.startswith("gradient_accumulation") for x in owner.given)
    if not is_accumulating:
        return Constant(("constant", "True"), value=True)
    return Thing((*owner.token, "sync_gradients", tuple(machine.passes)), frozenset({"synced", "varies"}))


def _in_last(machine: Machine) -> frozenset[Condition] | None:
    """What holds where an optimizer acts: under ``accelerator.accumulate(model)`` in the last of several passes, else None."""
    context = next((x for x in machine.contexts if x.kind == "accumulate" and x.inner is not None), None)
    if context is None or context.inner is None:
        return frozenset()
    return machine.conditions_if(synced(machine, context.inner), f"`{context.text.rpartition('.')[0]}.sync_gradients`")


def zero(machine: Machine, owner: Value, given: Call) -> Value:
    """``optimizer.zero_grad()``, ``model.zero_grad()``."""
    if is_optimizer(machine, owner) and _in_last(machine) is None:
        return Constant(("None",))
    params = of_optimizer(owner) if is_optimizer(machine, owner) else of_module(owner)
    machine.emit(Zero(**machine.about(given.node), params=params))
    return Constant(("None",))


def unscale(machine: Machine, owner: Value | None, given: Call) -> Value:
    """``scaler.unscale_(optimizer)``."""
    machine.emit(Unscale(**machine.about(given.node), params=UNKNOWN if owner is None else of_optimizer(owner)))
    return Constant(("None",))


def reduce(machine: Machine, tensors: Value, given: Call) -> None:
    """``dist.all_reduce(p.grad)``."""
    measures.reduced(machine, given)
    if isinstance(tensors, Elements) and "gradient" in tensors.marks:
        machine.emit(Reduce(**machine.about(given.node), params=tensors.params))
    elif isinstance(tensors, Thing) and tensors.token[-1:] == ("grad",):
        machine.emit(Reduce(**machine.about(given.node)))


def clip(
    machine: Machine,
    tensors: Value | None,
    limit: Value | None,
    given: Call,
    native: Native | None = None,
    written: ast.expr | None = None,
    *,
    is_by_rule: bool = False,
) -> Value:
    """``clip_grad_norm_(parameters, limit)``."""
    is_exact = native is not None and native.is_exact
    is_off = native is not None and native.dialect != "" and native.at_zero != "zeros"
    algorithm = given.given.get("gradient_clip_algorithm")
    by_method = "value" in getattr(given.node.func, "attr", "") or (
        isinstance(algorithm, Constant) and algorithm.value == "value"
    )
    is_value = is_exact if native is not None and native.dialect else by_method
    params = modules.free(machine, parameters(tensors))
    measures.for_limit(machine, limit)
    one = tensors
    if (
        isinstance(tensors, Tuple)
        and len(tensors.items) == 1
        and getattr(tensors.items[0], "loop", None) in (*machine.loops, *machine.lists)
    ):
        one = tensors.items[0]  # [p] in the loop over all p
    is_loop = isinstance(one, Elements) and one.is_one and one.of is None and "gradient" not in one.marks
    if tensors is not None and not isinstance(tensors, (Elements, Tuple, Table)) and tensors.token:
        params = Params.joined([params, Params(unseen=frozenset({tensors.token}))])
    said = limits.about(machine, limit, written, zero_is_off=is_off)
    machine.emit(
        Clip(
            **machine.about(given.node),
            params=params,
            kind="value" if is_value else "norm",
            **said,
            **limits.order(native, said["setting"], given),
            is_loop=is_loop,
            only_measures=isinstance(limit, Constant) and limit.value == math.inf,
            wants_norm=given.node is not machine.bare,
            is_local=measures.LOCAL in marks(given.args[2:]),
            is_of_weights=measures.WEIGHTS in marks(given.args[2:]),
            unread=_ZERO if params.known and params.known <= machine.engines else "",
            lost="" if is_by_rule else _lost(machine, tensors, params),
        )
    )
    if isinstance(limit, Constant) and limit.value == math.inf:
        return measures.measure(machine, Elements((), params=params), given.node)
    return Thing(machine.fresh(given.node, "norm", len(machine.events)), frozenset({"norm", "varies"}))


def _lost(machine: Machine, tensors: Value | None, params: Params) -> str:
    """Why a clip of these tensors changes nothing."""
    is_listed = isinstance(tensors, Thing) and tensors.token[:1] == ("list",) and tensors.token[-1:] == ("grad",)
    if is_listed or isinstance(tensors, Gradients) or (isinstance(tensors, Elements) and "gradient" in tensors.marks):
        return "It clips the gradients of the parameters that it gets: given gradients, it clips nothing."
    if isinstance(tensors, Elements) and "copy" in tensors.marks and not _HAS_OWN.search(machine.file.text):
        return "It gets copies of the parameters, which have no gradients: it clips nothing."
    if isinstance(tensors, Elements) and "state" in tensors.marks:
        return "It gets the tensors of a state_dict, which have no gradients: it clips nothing."
    is_own = params.known and params.known <= machine.differentiated and "backward" not in machine.file.called
    return "torch.autograd.grad returns the gradients and leaves `.grad` as it is: it clips nothing." if is_own else ""


def dropped(machine: Machine, given: Call) -> None:
    """``clip(params_grads)``, an object of Paddle: it returns clipped gradients, and nothing takes them."""
    params = Params.joined(parameters(x) for x in given.args)
    machine.emit(Clip(**machine.about(given.node), params=params, returns=True, is_dropped=True))
