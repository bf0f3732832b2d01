"""The classifier in PyTorch: torch's autograd, eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from gradclip.backends.demo.base import Function, Trainer

if TYPE_CHECKING:
    import numpy as np

    from gradclip.backends.demo.digits import Digits


class TorchTrainer(Trainer):
    name = "torch"

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.tensor(array)

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        array: np.ndarray = tensor.detach().numpy()
        return array

    def vector(self, numbers: list[float]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.float32)

    def numbers(self, vector: torch.Tensor) -> list[float]:
        return list(map(float, vector))

    def differentiate(self, weights: list[Any], batch: Digits) -> tuple[Any, list[Any]]:
        weights = [weight.detach().requires_grad_() for weight in weights]
        first, first_bias, second, second_bias = weights
        hidden = torch.tanh(self.tensor(batch.images) @ first + first_bias)
        loss = torch.nn.functional.cross_entropy(hidden @ second + second_bias, self.tensor(batch.labels))
        return loss.detach(), list(torch.autograd.grad(loss, weights))

    def devices(self) -> list[str]:
        found = ["cpu"] + [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
        return found + ["mps"] * torch.backends.mps.is_available()

    def traces(self) -> dict[str, Callable[[Function, Any], Any]]:
        # the eager compiler traces just as strictly and needs no C++ compiler
        return {"torch.compile(fullgraph=True)": lambda f, x: torch.compile(f, fullgraph=True, backend="eager")(x)}


trainer = TorchTrainer()
