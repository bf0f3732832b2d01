"""What the functions of libraries do to gradients; what clips is in ``gradclip.natives``."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from gradclip.natives import NATIVES, Kind, Native
from gradclip.natives.own import BY_RULE, dialect_of, native_of
from gradclip.source.reading import (
    coefficients,
    elements,
    forward,
    functional,
    gradients,
    measures,
    mends,
    methods,
    own,
    records,
    taken,
    transformations,
)
from gradclip.source.reading.values import (
    Bound,
    Call,
    Constant,
    Context,
    Elements,
    Function,
    Library,
    Made,
    Table,
    Thing,
    Tuple,
    Value,
    joined,
    marks,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["function"]

#: what wraps a model or a function and leaves its parameters and its meaning
_WRAPPERS = re.compile(
    r"(^|\.)(DistributedDataParallel|DataParallel|FullyShardedDataParallel|DDP|FSDP|compile|script|fully_shard|replicate|jit|pmap|"
    r"function|checkpoint|remat|shard_map|to_static|wraps|xmap|filter_jit|filter_pmap|inject_hyperparams)$"
)
_COPIES = re.compile(r"^copy\.deepcopy$|\.(clone_model|AveragedModel|ModelEma(V\d)?|ExponentialMovingAverage|EMA)$")
_FINITE = re.compile(r"(isfinite|isnan|isinf|is_finite|is_nan|is_inf|all_finite)$")
_RANK = re.compile(r"get_rank$|process_index$|is_main_process$|\.rank$")


@cache
def _native(name: str) -> Native | None:
    """The native of a qualified name, also of gradclip's function that reproduces it."""
    known = native_of(name)
    if known is None and name.startswith(("apex.", "megatron.", "colossalai.", "deepspeed.")):  # their own of torch's
        return next((x for x in NATIVES if x.framework == "torch" and x.last == name.rpartition(".")[2]), None)
    return known


def function(machine: Machine, name: str, given: Call) -> Value:
    """The result of a library's function."""
    native = _native(name)
    if native is not None and native.kind is Kind.IN_PLACE:
        return _clip(machine, native, given)
    if native is not None and native.kind is Kind.RETURNED:
        made = functional.clip(machine, native, given)
        return made if made is not None else machine.unknown(Library((name,), name=name), given)
    if (made := own.function(machine, name, given)) is not None:
        return made
    last, first = name.rpartition(".")[2], given.get(0)
    if last in ("chain", "from_iterable") and "itertools" in name:
        return _chained(given)
    if name == "collections.defaultdict" and isinstance(first, Thing) and str(first.token[0]) == "list":
        return Table(machine.fresh(given.node, "table"), is_of_lists=True)
    if last == "partial" and isinstance(first, (Function, Bound, Library)):
        return _partial(first, given)
    if (made := records.function(machine, name, given)) is not None:
        return made
    if last in forward.DETACHED:
        return Context((name,), kind="detached")
    if last == "scale_loss" and first is not None:
        return methods.apex(name, first)
    if last == "from_config" and isinstance(first, Table):
        known = {str(key): x for key, x in first.items.items()}
        return _made(machine, name.removesuffix(".from_config"), Call(given.node, (), known))
    if last == "initialize" and "amp" in name:
        return methods.same(given)
    if name == "deepspeed.initialize":
        return _engine(machine, given)
    if last in ("all_reduce", "all_reduce_coalesced") and first is not None:
        gradients.reduce(machine, first, given)
        return Constant(("None",))
    is_new = last in ("clamp", "clip") and given.node is not machine.bare and "out" not in given.given
    if is_new and isinstance(first, Elements) and first.is_one and "gradient" in first.marks:
        return elements.clamped(machine, first, given, 1)
    if name == "torch.autograd.grad" and isinstance(of := given.get(1, "inputs"), Elements):
        machine.differentiated |= of.params.known
        return functional.of_source(machine, given) or of
    if last == "backward" and "autograd" in name:
        return gradients.backward(machine, first, given)
    if last in ("nan_to_num", "nan_to_num_") and isinstance(first, Elements):
        return elements.on_elements(machine, first, last, given) or first
    if last in ("_foreach_mul_", "_foreach_div_") and isinstance(first, Elements):
        by = (given.args[1], given.written(1)) if len(given.args) > 1 else (Constant(()), None)
        elements.scaled(machine, first, given.node, by, divides="div" in last)
        return first
    if native is not None and native.kind is Kind.MEASURE and (of_weights := measures.of_parameters(first)) is not None:
        return of_weights
    takes = (native is not None and native.kind is Kind.MEASURE) or last in (
        "norm",
        "vector_norm",
        "matrix_norm",
        "_foreach_norm",
    )
    if takes and isinstance(first, Elements) and "gradient" in first.marks:
        return measures.measure(machine, first, given.node, of_matrix=coefficients.is_of_matrix(name, first, given))
    if _COPIES.search(name) and first is not None and gradients.may_be_module(machine, first):
        return Made(machine.fresh(given.node, name), name=name)  # its parameters are its own
    if last in ("cat", "concat", "concatenate", "hstack", "parameters_to_vector") and isinstance(first, Elements):
        return first
    made = functional.function(machine, name, given)
    if made is None and last == "create":  # a method of a class
        made = functional.method(machine, Library((name,), name=name), last, given)
    if made is not None:
        return made
    if _WRAPPERS.search(name) and first is not None and not isinstance(first, Constant):
        return _wrapped(machine, last, first, given)
    is_own = name in BY_RULE or dialect_of(name)
    if is_own or last[:1].isupper() or gradients.is_optimizer_class(name) or name.startswith("optax."):
        return _made(machine, name, given)
    found = machine.unknown(Library((name,), name=name), given)
    if _FINITE.search(name):
        found.marks |= {"finite"} | mends.mask(given.args)
    if _RANK.search(name):
        found.marks |= {"process"}
    return found


def _engine(machine: Machine, given: Call) -> Value:
    """``engine, optimizer, loader, scheduler = deepspeed.initialize(model=model, config=config)``."""
    model, config = given.get(1, "model"), given.get(5, "config", "config_params")
    model = model if model is not None else machine.thing(given.node, "engine")
    zero = config.items.get("zero_optimization") if isinstance(config, Table) else None
    stage = zero.items.get("stage") if isinstance(zero, Table) else None
    if isinstance(stage, Constant) and isinstance(stage.value, int) and stage.value > 0:
        machine.engines |= gradients.of_module(model).known
    return Tuple((), items=(model, *(machine.thing(given.node, x, x) for x in ("optimizer", "loader", "scheduler"))))


def _wrapped(machine: Machine, last: str, first: Value, given: Call) -> Value:
    """``FSDP(model)``, ``shard_map(step, mesh, in_specs)``."""
    if last == "shard_map" and isinstance(first, Function):
        return replace(first, specs=given.get(2, "in_specs"))
    if last in ("FullyShardedDataParallel", "FSDP") and "NO_SHARD" not in machine.shown(given.node):
        machine.sharded.update(gradients.of_module(first).known)
    return first


def _clip(machine: Machine, native: Native, given: Call) -> Value:
    place = (list(native.signature.parameters).index(native.limit), native.limit) if native.dialect else (-1,)
    return gradients.clip(machine, given.get(0, native.tensors), given.get(*place), given, native, given.written(*place))


def _chained(given: Call) -> Value:
    return joined(y for x in given.args for y in (x.items if isinstance(x, Tuple) else (x,)))


def _partial(first: Function | Bound | Library, given: Call) -> Value:
    if isinstance(first, Bound):
        return first
    return replace(first, given=((*first.given[0], *given.args[1:]), {**first.given[1], **given.given}))


def _made(machine: Machine, name: str, given: Call) -> Value:
    made = Made(
        machine.fresh(given.node, name),
        forward.kept(marks((*given.args, *given.given.values())), name),
        name=name,
        args=given.args,
        given=dict(given.given),
        node=given.node,
        is_open=gradients.shares_modules(machine, given),
        where=machine.place(given.node),
        text=machine.shown(given.node),
        tests=frozenset(machine.conditions),
    )
    taken.made_with(machine, made, given)
    if name.startswith("optax."):
        transformations.made_of(machine, made, given)
    return made
