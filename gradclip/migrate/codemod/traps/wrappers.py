"""GM109: libraries that wrap a model or an optimizer and have their own clip."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.migrate.apis.model import Kind
from gradclip.migrate.codemod.found import ApiCall, Finding
from gradclip.migrate.codemod.source import Source, last_name

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
    for call in context.source.any(cst.Call):
        name = last_name(call.func) if isinstance(call.func, cst.Attribute) else ""
        if name.startswith("clip_grad_norm") and context.source.exclusive(call, found.call):
            return None
    attributes = context.source.any(cst.Attribute)
    if _is_put_together(found):
        reason = "torch's norm of DTensors is a DTensor; gradclip's is an ordinary tensor, which has no full_tensor()."
        return Finding("GM109", reason, "Remove the .full_tensor() of the norm, then rewrite the call.")
    used = {binding.qualified for binding in context.resolver.bindings}
    used |= {context.resolver.name(attribute) for attribute in attributes if last_name(attribute) in _LAST_NAMES}
    for module, (whose, own) in _WRAPPERS.items():
        if any(name == module or name.startswith(module + ".") for name in used):
            if "shards" in whose and (found.clips_by_value or _is_left_over(found)):
                continue  # clipping by value works on each shard alone; or another branch clips the shards
            return _finding(whose, own, found)
    return _finding(*_WRAPPERS["accelerate.Accelerator"], found) if _is_accelerated(found) else None


def _is_left_over(found: ApiCall) -> bool:
    """Whether the call comes after a branch for FSDP that clips with the model's own method and returns."""
    source = found.context.source
    function = source.function(found.call)
    for branch in source.any(cst.If):
        before = source.function(branch) is function and source.end(branch) <= source.start(found.call)
        if before and "fsdp" in source.code(branch.test).lower():
            returned = (one.value for one in source.any(cst.Return) if branch in source.ancestors(one))
            if any(isinstance(value, cst.Call) and last_name(value.func).startswith("clip_grad_norm") for value in returned):
                return True
    return False


def _is_put_together(found: ApiCall) -> bool:
    """Whether code uses the norm of this call as a DTensor, except directly on the call or under a test for DTensor."""
    source, call = found.context.source, found.call
    if found.clips_by_value or "total_norm" in found.arguments:
        return False  # these functions return no norm
    holder = source.parents[call]
    if isinstance(holder, cst.Return):  # the caller uses the norm
        return any(_is_a_norm(node, source) for node in source.any(cst.Attribute))
    target = holder.targets[0].target if isinstance(holder, cst.Assign) else None
    if not isinstance(target, cst.Name):
        return False
    function = source.function(call)
    uses = (use for use in found.context.resolver.uses.get(target.value, ()) if source.function(use) is function)
    return any(_is_full(use, source) and not _is_asked(use, source) for use in uses)


def _is_a_norm(attribute: cst.Attribute, source: Source) -> bool:
    """Whether an attribute is ``full_tensor`` of a norm, by a name of a variable or function; saving parameters uses it too."""
    owner = attribute.value.func if isinstance(attribute.value, cst.Call) else attribute.value
    if last_name(attribute) != "full_tensor" or "norm" not in last_name(owner).lower():
        return False
    return not isinstance(owner, cst.Name) or not _is_asked(owner, source)


def _is_full(use: cst.Name, source: Source) -> bool:
    attribute = source.parents[use]
    return isinstance(attribute, cst.Attribute) and attribute.attr.value == "full_tensor"


def _is_asked(use: cst.Name, source: Source) -> bool:
    """Whether a name is in ``if isinstance(norm, DTensor)`` or ``if hasattr(norm, "full_tensor")``."""
    pattern = rf"(isinstance|hasattr)\(\s*{use.value}\b"
    tests = (outer.test for outer in source.ancestors(use) if isinstance(outer, (cst.If, cst.IfExp)))
    return any(re.search(pattern, source.code(test)) for test in tests)


def _finding(whose: str, own: str, found: ApiCall) -> Finding:
    if found.clips_by_value:
        own = own.replace("clip_grad_norm_(parameters, max_norm)", "clip_grad_value_(parameters, clip_value)")
    return Finding("GM109", f"{whose}, and this call does not take that into account.", f"Use {own}.")


def _is_accelerated(found: ApiCall) -> bool:
    """Whether an ``accelerator.backward(loss)`` can make the gradients: in another function, or before the clip."""
    source = found.context.source
    here = [event.call for event in found.context.flow.events(found.call, "backward")]
    for call in source.any(cst.Call):
        if isinstance(call.func, cst.Attribute) and last_name(call.func) == "backward":
            accelerator = "accelerator" in last_name(call.func.value).lower()
            if accelerator and (call in here or source.function(call) is not source.function(found.call)):
                return True
    return False


def _fleet(found: ApiCall) -> Finding | None:
    """A clip in a source whose optimizer Fleet wraps: Fleet replaces Paddle's clip with its own."""
    if found.api.kind not in (Kind.OBJECT, Kind.IN_PLACE):
        return None
    for call in found.context.source.any(cst.Call):
        if last_name(call.func) == "distributed_optimizer":
            receiver = call.func.value if isinstance(call.func, cst.Attribute) else call.func
            if last_name(receiver) == "fleet" or ".fleet." in found.context.resolver.name(call.func):
                reason = "Fleet's optimizer replaces Paddle's clip by one that knows how the parameters are sharded."
                return Finding("GM109", reason, "Keep Paddle's clip for the optimizer that Fleet wraps.")
    return None
