"""PyTorch gradients that are placed otherwise than their parameters, or that some processes lack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from gradclip.backends.torch.placements import DTensor, check, total, words_of
from gradclip.core.backend import Tensor
from gradclip.core.placed import Placed, Unlike

__all__ = ["TorchUnlike"]


class TorchUnlike(Unlike):
    """DTensors beside their parameters."""

    tensor = torch.Tensor

    @property
    def rank(self) -> int:
        return int(dist.get_rank())

    def placed(self, x: Any) -> Placed | None:
        if not isinstance(x, DTensor):
            return None
        mesh = x.device_mesh
        return Placed(tuple(mesh.mesh.flatten().tolist()), tuple(mesh.shape), words_of(mesh, x.placements))

    def check(self, x: Any) -> None:
        check(x.placements)

    def is_alike(self, leaf: Any, param: Any) -> bool:
        is_same_type = type(leaf) is type(param)
        return is_same_type and leaf.placements == param.placements and leaf.device_mesh == param.device_mesh

    def is_frozen(self, param: Any) -> bool:
        return not param.requires_grad

    def size(self, x: Tensor) -> int:
        return int(x.numel())

    def dtype(self, x: Tensor) -> str:
        return str(x.dtype).removeprefix("torch.")

    def add_up(
        self, pieces: Sequence[Any], sizes: Sequence[int], fill: float, dtype: str, on: Any, sums: Sequence[tuple[int, str]]
    ) -> list[Any]:
        wide = getattr(torch, dtype)
        device = next((x.device for x in self.local if x is not None), torch.device(on.device_mesh.device_type))
        flat = [
            torch.full((n,), fill, dtype=wide, device=device) if x is None else x.detach().to(wide).reshape(-1)
            for x, n in zip(pieces, sizes, strict=True)
        ]
        return list(total(torch.cat(flat), on.device_mesh, sums).split(list(sizes)))
