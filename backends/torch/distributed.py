"""PyTorch gradients on several processes: the part for every call, without the modules of DTensors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from gradclip.backends.torch import trainers, versions
from gradclip.core.backend import Tensor
from gradclip.core.errors import ArgumentError, page
from gradclip.core.parts import Distributed, Parts, Processes

__all__ = ["TorchDistributed"]


class TorchDistributed(Distributed):
    """DTensors and process groups; imports :mod:`gradclip.backends.torch.dtensor` only if there are some."""

    trainers = trainers.TRAINERS
    is_running = staticmethod(getattr(torch.distributed, "is_initialized", bool))

    def check_marks(self, params: Sequence[Any], tensors: Sequence[Any]) -> None:
        if versions.is_compiling() or self.size() == 1:
            return
        for param, x in zip(params, tensors, strict=True):
            divided = None if param is None or hasattr(x, "full_tensor") else trainers.divided_by(param, x)
            if divided is not None:
                what = f"{divided[0]}: each process would have its own norm here."
                received = f"a parameter of shape {tuple(param.shape)}, without shards= and reduce="
                raise ArgumentError(what, received, f"{divided[1]} See {page(divided[2])}")

    def parts(self, leaves: Sequence[Tensor | None], params: Sequence[Any]) -> Parts | None:
        if not _may_be_dtensors():
            return None
        from gradclip.backends.torch import dtensor

        return dtensor.parts(leaves, params)

    def show_shards(self, params: Sequence[Any]) -> bool:
        if not params or params[0] is None or not _may_be_dtensors():
            return False
        return sys.modules[versions.DISTRIBUTED_TENSORS].DTensor in set(map(type, params))

    def as_native(self, norm: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        if not _may_be_dtensors():
            return norm
        from gradclip.backends.torch import dtensor

        return dtensor.replicated(norm, tensors)

    def together(self, x: Tensor) -> Tensor:
        return x.full_tensor() if hasattr(x, "full_tensor") else x

    def held_elsewhere(self, params: Sequence[Any]) -> str | None:
        if not any(hasattr(param, mark) for param in params for mark in trainers.DEEPSPEED):
            return None
        hint = "DeepSpeed's ZeRO keeps the gradients, and p.grad stays None. Set gradient_clipping in its configuration: its "
        hint += "step clips. deepspeed.utils.safe_get_full_grad(p) reads a gradient between backward() and step(): "
        return hint + page("distributed.md#deepspeed-zero")

    def is_recorded(self, tensors: Sequence[Tensor]) -> bool:
        return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)

    def group(self, given: object, name: str = "reduce") -> Processes | None:
        if not torch.distributed.is_available():
            return None
        from gradclip.backends.torch import dtensor

        return dtensor.group_of(given, name)

    def size(self) -> int:
        return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def _may_be_dtensors() -> bool:
    """Whether tensors may be DTensors that gradclip takes apart: their program has imported their module, which takes long."""
    return versions.DISTRIBUTED_TENSORS in sys.modules and not versions.is_compiling()
