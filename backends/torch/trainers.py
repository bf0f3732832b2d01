"""The marks of trainers on parameters whose plain gradients may be shards: FSDP, DeepSpeed's ZeRO, Megatron."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["DEEPSPEED", "TRAINERS", "divided_by"]

#: what DeepSpeed's ZeRO sets on a parameter (stages 1 and 2: the mapping); without them a warning has a more general hint
DEEPSPEED = ("_hp_mapping", "ds_id", "ds_tensor", "_z3_optimizer")
#: modules of trainers whose parameters have plain gradients that may be shards
TRAINERS = ("torch.distributed.fsdp", "deepspeed", "megatron")
_FSDP1_PAGE, _ZERO_PAGE, _MEGATRON_PAGE = "distributed.md#fsdp1", "distributed.md#deepspeed-zero", "distributed.md#megatron"
_FLAT = "_fsdp_flattened"  # FullyShardedDataParallel's mark
_MEGATRON = 'shards=lambda name, p: expert_group if getattr(p, "allreduce", True) is False else tensor_group if '
_MEGATRON += 'getattr(p, "tensor_model_parallel", False) else None, with the groups from megatron.core.parallel_state.'


def divided_by(param: Any, gradient: Any) -> tuple[str, str, str] | None:
    """The trainer whose marks say that a parameter's plain gradient may be a shard, the line to write, and a page; or None."""
    if getattr(param, _FLAT, False) and _may_be_flat(param):
        hint = f'shards=lambda name, p: model.process_group if getattr(p, "{_FLAT}", False) else None, or FSDP\'s own '
        hint += "model.clip_grad_norm_(max_norm). Under NO_SHARD every process has all gradients: shards={}."
        return "FullyShardedDataParallel may have divided these gradients", hint, _FSDP1_PAGE
    if gradient is not None and hasattr(param, "ds_tensor") and gradient.numel() != getattr(param, "ds_numel", -1):
        return "DeepSpeed's ZeRO has divided these gradients", "shards=lambda name, p: p.ds_process_group.", _ZERO_PAGE
    if getattr(param, "allreduce", True) is False:
        return "Megatron's mark allreduce=False says that processes have other experts", _MEGATRON, _MEGATRON_PAGE
    if getattr(param, "tensor_model_parallel", False) is True and _tensor_parallel_size() > 1:
        return "Megatron's mark tensor_model_parallel says that processes have other shards", _MEGATRON, _MEGATRON_PAGE
    return None


def _may_be_flat(param: Any) -> bool:
    """Whether a parameter of FullyShardedDataParallel may be a shard: under NO_SHARD it is none, but need not tell."""
    if hasattr(param, "_sharded_size"):  # a flat parameter
        return hasattr(param, "_padded_unsharded_size")
    return bool(param.dim() == 1)  # a shard of an original parameter is flat


def _tensor_parallel_size() -> int:
    size = getattr(sys.modules.get("megatron.core.parallel_state"), "get_tensor_model_parallel_world_size", None)
    return 2 if size is None else int(size())  # unknown: there may be several
