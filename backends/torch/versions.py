"""PyTorch's private names, each with what is done where a version has it not."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

__all__ = [
    "count_write",
    "has_modes",
    "is_exporting",
    "is_fake",
    "is_forward_differentiating",
    "is_transformed",
    "is_wrapped",
]

try:
    from torch._subclasses.fake_tensor import FakeTensor
except ImportError:  # there is no public name; without it fake tensors go by the reference

    class FakeTensor:  # type: ignore[no-redef]
        """Of no tensor's type."""


_functorch = getattr(torch._C, "_functorch", None)
_level = getattr(_functorch, "maybe_current_level", lambda: None)
#: whether a tensor is an input of ``torch.func.grad``, ``vmap`` or the like; without an answer none is
is_wrapped = getattr(_functorch, "is_functorch_wrapped_tensor", lambda x: False)
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
#: whether this is traced by ``torch.export``, which keeps no operator of a library; from torch 2.7 on it can be asked
is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)


def is_transformed() -> bool:
    """Whether this is inside ``torch.func.vmap``, ``grad`` or the like, or a derivative in forward mode is taken."""
    return _level() is not None or is_forward_differentiating()


def is_forward_differentiating() -> bool:
    """Whether tangents are carried: inside ``torch.autograd.forward_ad.dual_level()``."""
    return getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0


def is_fake(x: Any) -> bool:
    """Whether a tensor has a shape and a device, and no values."""
    return isinstance(x, FakeTensor)


def has_modes() -> bool:
    """Whether a dispatch mode wants to see each operation, or ``torch.jit.trace`` records them."""
    return bool(_modes()) or torch.jit.is_tracing()


def count_write(tensors: Sequence[torch.Tensor]) -> None:
    """Tell autograd that memory was written; before torch 2.5 one tensor at a time."""
    try:
        torch.autograd.graph.increment_version(tensors)
    except (TypeError, AttributeError):
        for x in tensors:
            torch.autograd.graph.increment_version(x)


def strided_shard() -> type:
    """The placement of a tensor that two dimensions of a mesh split along one axis; without it there are no such tensors."""
    try:
        from torch.distributed.tensor.placement_types import _StridedShard
    except ImportError:
        return type("StridedShard", (), {})
    found: type = _StridedShard
    return found


#: the multi-tensor operations, which torch's own optimizers and clips are made of
foreach_norm, foreach_mul, foreach_mul_ = torch._foreach_norm, torch._foreach_mul, torch._foreach_mul_
foreach_clamp_max, foreach_clamp_max_ = torch._foreach_clamp_max, torch._foreach_clamp_max_
foreach_clamp_min_ = torch._foreach_clamp_min_

#: what is asked of all tensors at once
DTYPE, LAYOUT, REQUIRES_GRAD = map(operator.attrgetter, ("dtype", "layout", "requires_grad"))
