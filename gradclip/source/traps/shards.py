"""GM124: a norm over one process's shards of the gradients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.bind import keywords
from gradclip.source.found import ApiCall, Finding
from gradclip.source.source import Source, last_name, once, receiver

__all__ = ["check", "is_beside_another", "is_left_over"]

_FSDP = (
    "FullyShardedDataParallel"  # of torch and of fairscale; the gradients of fully_shard are DTensors, which know their shards
)

_ANSWERS = frozenset({"shards", "reduce"})  #: gradclip's arguments that say which processes hold the rest


def check(found: ApiCall) -> Finding | None:
    """The parameters of a model in FSDP, in torch's clip by norm: each process takes the norm of its own shards."""
    if found.framework != "torch" or found.api.kind is not Kind.IN_PLACE or found.clips_by_value:
        return None
    context, model = found.context, None if found.tensors is None else receiver(found.tensors, "parameters")
    if not isinstance(model, (cst.Name, cst.Attribute)):
        return None
    made = context.values.only(model) if isinstance(model, cst.Attribute) else context.values.value_of(model)
    if not isinstance(made, cst.Call) or context.resolver.name(made.func).rpartition(".")[2] != _FSDP:
        return None
    if "NO_SHARD" in context.source.code(made) or is_beside_another(found) or is_left_over(found):
        return None
    shown = context.source.code(model)
    does = "torch's function takes the norm of one process's shards, another in each process."
    if found.is_own:
        if not _ANSWERS.isdisjoint(keywords(found.call)):
            return None
        does = "gradclip refuses its gradients without shards= or reduce=."
    return Finding("GM124", f"`{shown}` is in FSDP: {does}", f"Use {shown}.clip_grad_norm_(max_norm).")


def is_beside_another(found: ApiCall) -> bool:
    """Whether another branch clips by a method of an object, such as a wrapper's: then this one is for other models."""
    source = found.context.source
    clips = _clipping_sides(source)
    return any(
        len(clips.get(branch, ())) > (side in clips.get(branch, ())) for branch, side in source.sides(found.call).items()
    )


@once
def _clipping_sides(source: Source) -> Mapping[cst.CSTNode, set[cst.CSTNode]]:
    """The sides that contain a clip by a method or a function of a module, by branch."""
    found: dict[cst.CSTNode, set[cst.CSTNode]] = defaultdict(set)
    for name, calls in source.calls.items():
        for call in calls:
            if name.startswith("clip_grad_norm") and receiver(call) is not None:
                for branch, side in source.sides(call).items():
                    found[branch].add(side)
    return found


def is_left_over(found: ApiCall) -> bool:
    """Whether the call comes after a branch for FSDP that clips with the model's own method and returns."""
    source = found.context.source
    end = _returns_of_fsdp(source).get(source.function(found.call))
    return end is not None and end <= source.start(found.call)


@once
def _returns_of_fsdp(source: Source) -> Mapping[cst.CSTNode, int]:
    """The end of the first branch for FSDP that returns the result of a clip, by function."""
    found: dict[cst.CSTNode, int] = {}
    for one in source.all(cst.Return):
        if isinstance(one.value, cst.Call) and last_name(one.value.func).startswith("clip_grad_norm"):
            for branch in source.ancestors(one):
                if isinstance(branch, cst.If) and "fsdp" in source.code(branch.test).lower():
                    function, end = source.function(branch), source.end(branch)
                    found[function] = min(end, found.get(function, end))
    return found
