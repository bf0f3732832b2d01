"""Placements of DTensors: which are known, and the sums of addends over processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from gradclip.backends.torch import versions
from gradclip.core.backend import Tensor
from gradclip.core.errors import ArgumentError

__all__ = ["SPLIT", "DTensor", "Kind", "Partial", "Replicate", "check", "group_along", "summed", "sums_of", "total", "words_of"]

_tensors = versions.distributed_tensors()
DTensor, Partial, Replicate, Shard = _tensors.DTensor, _tensors.Partial, _tensors.Replicate, _tensors.Shard
SPLIT: Any = (Shard, versions.strided_shard())
Kind = tuple[DeviceMesh, tuple[Any, ...]]  # the place of a gradient: its mesh and placements
_REDUCTIONS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


def check(placements: Sequence[Any]) -> None:
    """Refuse placements without a norm."""
    for placement in placements:
        is_sum = type(placement) is Partial and placement.reduce_op in _REDUCTIONS
        if not isinstance(placement, SPLIT) and type(placement) is not Replicate and not is_sum:
            what = "The norm of a gradient of this placement is not defined."
            raise ArgumentError(what, f"placements={tuple(placements)}", "redistribute it to Shard or Replicate.")


def group_along(mesh: DeviceMesh, dimension: int) -> dist.ProcessGroup:
    """The group of a mesh's dimension, the same for equal meshes: DTensor's caches may give a gradient another equal mesh."""
    group: dist.ProcessGroup = versions.canonical(mesh.get_group(dimension))
    return group


def sums_of(kind: Kind) -> tuple[tuple[int, str], ...]:
    """The mesh dimensions over which a gradient is still to be summed, and how."""
    return tuple((d, placement.reduce_op) for d, placement in enumerate(kind[1]) if isinstance(placement, Partial))


def summed(local: list[Any], kinds: dict[Kind, list[int]]) -> list[Any]:
    """The shards, with addends summed over processes: one collective for each reduction and dtype, in at least float32."""
    values = list(local)
    batches: dict[tuple[Any, ...], list[int]] = {}
    for kind, places in kinds.items():
        for i in places if sums_of(kind) else ():
            dtype = torch.promote_types(local[i].dtype, torch.float32)
            batches.setdefault((kind[0], sums_of(kind), dtype), []).append(i)
    for (mesh, sums, dtype), places in batches.items():
        flat = torch.cat([local[i].detach().to(dtype).reshape(-1) for i in places])
        flat = total(flat, mesh, sums)
        pieces = flat.split([local[i].numel() for i in places])
        for i, piece in zip(places, pieces, strict=True):
            values[i] = piece.view(local[i].shape)
    return values


def total(flat: Tensor, mesh: DeviceMesh, sums: Sequence[tuple[int, str]]) -> Tensor:
    """Addends, summed over these dimensions of the mesh."""
    for dimension, op in sums:
        dist.all_reduce(flat, _REDUCTIONS[op], group=group_along(mesh, dimension))
        flat = flat / mesh.size(dimension) if op == "avg" else flat
    return flat


def words_of(mesh: DeviceMesh, placements: Sequence[Any]) -> tuple[str, ...]:
    """A word for each dimension of the mesh, the same on all processes.

    Along a dimension of one process all placements are the same.
    """
    return tuple("R" if mesh.size(d) == 1 else _word(x) for d, x in enumerate(placements))


def _word(placement: Any) -> str:
    if isinstance(placement, Partial):
        return f"P:{placement.reduce_op}"
    return f"S{placement.dim}{getattr(placement, 'split_factor', '')}" if isinstance(placement, SPLIT) else "R"
