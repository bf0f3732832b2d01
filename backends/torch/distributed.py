"""PyTorch gradients on several processes: the part for every call, without the modules of DTensors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from gradclip.backend import Tensor
from gradclip.backends.torch import versions
from gradclip.parts import Distributed, Parts, Processes

__all__ = ["TorchDistributed"]


class TorchDistributed(Distributed):
    """DTensors and process groups; imports :mod:`gradclip.backends.torch.dtensor` only if there are some."""

    def parts(self, leaves: Sequence[Tensor | None], owners: Sequence[Any]) -> Parts | None:
        # a program with DTensors has imported their module, which takes a second
        if versions.is_compiling() or versions.DISTRIBUTED_TENSORS not in sys.modules:
            return None
        from gradclip.backends.torch import dtensor

        return dtensor.parts(leaves, owners)

    def together(self, x: Tensor) -> Tensor:
        return x.full_tensor() if hasattr(x, "full_tensor") else x

    def is_recorded(self, tensors: Sequence[Tensor]) -> bool:
        return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)

    def group(self, reduce: object) -> Processes | None:
        if not torch.distributed.is_available():
            return None
        from gradclip.backends.torch import dtensor

        return dtensor.group_of(reduce)
