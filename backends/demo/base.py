"""The class that a framework supplies for the training loop. NumPy is imported only where it is used: PyTorch does without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from gradclip.backends.demo import digits

Tensor = Any
Function = Callable[[Tensor], Tensor]


class Trainer:
    """One framework's derivatives; this class clips nothing."""

    name = ""

    def tensor(self, array: np.ndarray) -> Tensor:
        """The framework's own tensor of these values."""
        raise NotImplementedError

    def array(self, tensor: Tensor) -> np.ndarray:
        """A tensor's values."""
        import numpy as np

        return np.asarray(tensor)

    def vector(self, numbers: list[float]) -> Tensor:
        """A tensor of float32."""
        import numpy as np

        return self.tensor(np.array(numbers, "float32"))

    def numbers(self, vector: Tensor) -> list[float]:
        """A vector's values."""
        return list(map(float, self.array(vector)))

    def differentiate(self, weights: list[Tensor], batch: digits.Digits) -> tuple[Tensor, list[Tensor]]:
        """The loss of a batch, and its gradients by the framework's own autograd."""
        raise NotImplementedError

    def devices(self) -> list[str]:
        """The devices that the framework sees on this machine."""
        return ["cpu"]

    def traces(self) -> dict[str, Callable[[Function, Tensor], Tensor]]:
        """The framework's ways to trace, by name: each calls a function, traced, on a tensor."""
        return {}
