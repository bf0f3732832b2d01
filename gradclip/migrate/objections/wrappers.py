"""GM109: libraries that wrap a model or an optimizer and have their own clip."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.source import Source, last_name, once, receiver
from gradclip.source.traps.shards import is_beside_another, is_left_over

__all__ = ["check"]

# imported or mentioned name -> the library's effect, and the function to call
_WRAPPERS = {
    # fully_shard of the same module is missing: its gradients are DTensors, which know their placements
    "torch.distributed.fsdp.FullyShardedDataParallel": ("FSDP shards the gradients", "model.clip_grad_norm_(max_norm)"),
    "torch.distributed.fsdp.fully_sharded_data_parallel": ("FSDP shards the gradients", "model.clip_grad_norm_(max_norm)"),
    "fairscale": ("fairscale shards the gradients", "model.clip_grad_norm_(max_norm)"),
    "deepspeed": ("DeepSpeed's engine partitions the gradients", '"gradient_clipping" of its configuration'),
    "accelerate.Accelerator": (
        "Accelerate may scale and shard the gradients",
        "accelerator.clip_grad_norm_(parameters, max_norm)",
    ),
    "opacus": ("Opacus clips per example, as its privacy accounting assumes", "max_grad_norm of make_private"),
    "colossalai": ("ColossalAI shards the gradients", "booster's or the engine's own clip"),
}
_LAST_NAMES = {name.rpartition(".")[2] for name in _WRAPPERS}  # only attributes with these names need to be resolved


def check(found: ApiCall) -> Finding | None:
    """A clip by torch in a source that uses such a library, except in a branch for running without the library."""
    if found.api.framework == "paddle":
        return _fleet(found)
    if found.api.framework != "torch" or found.api.kind is not Kind.IN_PLACE:
        return None
    context = found.context
    if is_beside_another(found):
        return None
    used = _used(context)
    for module, (whose, own) in _WRAPPERS.items():
        if any(name == module or name.startswith(module + ".") for name in used):
            if _is_in_another_branch(found, "fsdp" if "fsdp" in module else module.partition(".")[0]):
                continue
            given = "total_norm" in found.api.signature.parameters
            if "shards" in whose and (found.clips_by_value or given or is_left_over(found)):
                continue  # by value, or by a norm that it gets, each shard alone is right; or another branch clips the shards
            if "FSDP" in whose and any(name.endswith(".fully_shard") for name in used):
                own = f"gradclip.clip_grad_norm_, or torch's, on what fully_shard wraps; {own} is FSDP1's"
            return _finding(whose, own, found)
    return _finding(*_WRAPPERS["accelerate.Accelerator"], found) if _is_accelerated(found) else None


def _is_in_another_branch(found: ApiCall, word: str) -> bool:
    """Whether a test for a library has left the call to the others: in its ``else``, or after a branch that returns."""
    source = found.context.source
    if any(not holds and _asks_for(test, word, source) for test, holds in source.tests(found.call)):
        return True
    here, start = source.function(found.call), source.start(found.call)
    for one in source.all(cst.If):
        if _asks_for(one.test, word, source) and source.function(one) is here and source.end(one.body) <= start:
            last = one.body.body[-1] if isinstance(one.body, cst.IndentedBlock) else None
            if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], (cst.Return, cst.Raise, cst.Continue)):
                return True
    return False


def _asks_for(test: cst.BaseExpression, word: str, source: Source) -> bool:
    """Whether a test holds for a library: it names it, and denies nothing."""
    shown = source.code(test).lower()
    return word in shown and re.search(r"\bnot\b|!=", shown) is None


@once
def _used(context: Context) -> set[str]:
    """The qualified names that a source imports or mentions."""
    nodes = (node for name in _LAST_NAMES for node in context.source.named.get(name, ()) if isinstance(node, cst.Attribute))
    return {binding.qualified for binding in context.resolver.bindings} | {context.resolver.name(node) for node in nodes}


def _finding(whose: str, own: str, found: ApiCall) -> Finding:
    if found.clips_by_value:
        own = own.replace("clip_grad_norm_(parameters, max_norm)", "clip_grad_value_(parameters, clip_value)")
    return Finding("GM109", f"{whose}, and this call does not take that into account.", f"Use {own}.")


def _is_accelerated(found: ApiCall) -> bool:
    """Whether an ``accelerator.backward(loss)`` can make the gradients: in another function, or before the clip."""
    source = found.context.source
    calls = _accelerators(source)
    return any(
        source.function(call) is not source.function(found.call) or _can_meet(call, found.call, source) for call in calls
    )


def _can_meet(call: cst.Call, other: cst.Call, source: Source) -> bool:
    """Whether two calls can run in one step: no branch, and no test with another value, keeps them apart."""
    here, there = (dict(_said(node, source)) for node in (call, other))
    return source.excluding(call, other) is None and all(there.get(test, holds) is holds for test, holds in here.items())


def _said(node: cst.Call, source: Source) -> Iterator[tuple[str, bool]]:
    """The tests around a node, each with its value there."""
    for test, holds in source.tests(node):
        negated = isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not)
        yield (
            source.one_line(test.expression if isinstance(test, cst.UnaryOperation) and negated else test),
            holds is not negated,
        )


@once
def _accelerators(source: Source) -> list[cst.Call]:
    """The calls of ``accelerator.backward``."""
    return [call for call in source.calls.get("backward", ()) if "accelerator" in last_name(receiver(call)).lower()]


def _fleet(found: ApiCall) -> Finding | None:
    """A clip in a source whose optimizer Fleet wraps: Fleet replaces Paddle's clip with its own."""
    if found.api.kind not in (Kind.OBJECT, Kind.IN_PLACE):
        return None
    for call in found.context.source.calls.get("distributed_optimizer", ()):
        if last_name(receiver(call) or call.func) == "fleet" or ".fleet." in found.context.resolver.name(call.func):
            reason = "Fleet's optimizer replaces Paddle's clip by one that knows how the parameters are sharded."
            return Finding("GM109", reason, "Keep Paddle's clip for the optimizer that Fleet wraps.")
    return None
