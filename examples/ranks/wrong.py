"""Three clips that are right on one rank and wrong on several: ``gradclip conformance wrong.py:local_norm --ranks 4``."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def shards(parameters: Iterable[torch.nn.Parameter]) -> list[torch.Tensor]:
    """Return what this rank holds of the gradients."""
    grads = [p.grad for p in parameters if p.grad is not None]
    return [grad.to_local() if isinstance(grad, DTensor) else grad for grad in grads]


def scale(mine: list[torch.Tensor], norm: torch.Tensor, max_norm: float) -> None:
    for shard in mine:
        shard.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))


def squares(mine: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([torch.zeros(()), *(shard.float().square().sum() for shard in mine)]).sum()


def local_norm(parameters: list[torch.nn.Parameter], max_norm: float) -> torch.Tensor:
    """Clip by the norm of this rank's shards: each rank has another one."""
    mine = shards(parameters)
    norm = squares(mine).sqrt()
    scale(mine, norm, max_norm)
    return norm


def replicas_twice(parameters: list[torch.nn.Parameter], max_norm: float) -> torch.Tensor:
    """Sum the squares over all ranks: what several ranks hold counts several times."""
    mine = shards(parameters)
    total = squares(mine)
    dist.all_reduce(total)
    norm = total.sqrt()
    scale(mine, norm, max_norm)
    return norm


def groups_from_gradients(parameters: list[torch.nn.Parameter], max_norm: float) -> torch.Tensor:
    """Reduce once for each mesh of the gradients: a rank that lacks those of a mesh does not reduce, and the others wait."""
    by_mesh: dict[object, list[torch.Tensor]] = {}
    for p in parameters:
        if isinstance(p.grad, DTensor):
            divided = tuple(d for d, kind in enumerate(p.grad.placements) if kind.is_shard())
            by_mesh.setdefault((p.grad.device_mesh, divided), []).append(p.grad.to_local())
        elif p.grad is not None:
            by_mesh.setdefault((None, ()), []).append(p.grad)
    total = torch.zeros(())
    for (mesh, divided), mine in by_mesh.items():  # type: ignore[misc]
        square = squares(mine)
        for d in divided:
            dist.all_reduce(square, group=mesh.get_group(d))
        total += square
    norm = total.sqrt()
    scale(shards(parameters), norm, max_norm)
    return norm
