"""torchtitan's recipe, in other words: ``gradclip conformance torchtitan.py:dense --ranks 4``.

torchtitan takes the norm by torch's own function, gathers it, adds the stages of the pipeline and scales. With experts it takes
two norms, one for the mesh that has an axis of experts and one for all other parameters, because torch takes no norm over two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

Stages = dist.ProcessGroup | None  #: the stages of the pipeline
HELP = torch.nn.utils


def gathered(params: Sequence[torch.nn.Parameter], norm_type: float) -> torch.Tensor:
    """Return the norm of gradients that lie on one mesh, the same on each of its ranks."""
    norm = HELP.get_total_norm([p.grad for p in params if p.grad is not None], norm_type)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def over_stages(norm: torch.Tensor, norm_type: float, stages: Stages) -> torch.Tensor:
    if stages is None:
        return norm
    if norm_type == float("inf"):
        dist.all_reduce(norm, dist.ReduceOp.MAX, stages)
        return norm
    power = norm**norm_type
    dist.all_reduce(power, group=stages)
    return cast("torch.Tensor", power ** (1 / norm_type))


def dense(
    parameters: Sequence[torch.nn.Parameter], max_norm: float, norm_type: float = 2.0, stages: Stages = None
) -> torch.Tensor:
    """Clip a model without experts."""
    norm = over_stages(gathered(parameters, norm_type), norm_type, stages)
    HELP.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def with_experts(
    parameters: Sequence[torch.nn.Parameter],
    max_norm: float,
    norm_type: float = 2.0,
    stages: Stages = None,
    is_expert: Callable[[torch.nn.Parameter], bool] = lambda p: "b" in (p.device_mesh.mesh_dim_names or ()),
) -> torch.Tensor:
    """Clip a model with experts. By default these have a mesh with an axis "b": the suite names its axes "a", "b" and so on."""
    having = [p for p in parameters if p.grad is not None]
    if not all(isinstance(p.grad, DTensor) for p in having):
        raise TypeError("each gradient must be a DTensor")
    parts = [p for p in having if is_expert(p)], [p for p in having if not is_expert(p)]
    norms = torch.stack([gathered(part, norm_type) for part in parts])
    norm = over_stages(torch.linalg.vector_norm(norms, norm_type), norm_type, stages)
    for part in parts:
        HELP.clip_grads_with_norm_(part, max_norm, norm)
    return norm
