"""Paddle's tensors, for the calls that are compared in dynamic mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import paddle

from gradclip.natives import Applied, Native
from replaced.compare import Table, Untraced

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Kit"]


@dataclass
class Kit(Untraced):
    """Copies and reads gradients: the pairs of a clip in a slot, or those of parameters."""

    table: Table

    def is_tracing(self) -> bool:
        return not paddle.in_dynamic_mode()

    def listed(self, given: Any, native: Native) -> list[Any]:
        return [given] if isinstance(given, paddle.Tensor) else list(given)

    def grads(self, tensors: list[Any], native: Native) -> list[Any] | None:
        """A pair for each gradient; None if one has no plain numbers."""
        pairs = tensors if native.applied is Applied.SLOT else [(x, x.grad) for x in tensors]
        found = [(x, grad) for x, grad in pairs if grad is not None]
        return found if all(grad.is_dense() and not grad.is_dist() for _, grad in found) else None

    def copies(
        self, grads: list[Any], rest: Sequence[Any], options: Mapping[str, Any], *, is_wide: bool
    ) -> tuple[list[Any], list[Any], dict[str, Any]]:
        """The arguments with copies of the gradients, in float64 if wide."""
        wide = [(x, grad.astype("float64") if is_wide else grad.clone()) for x, grad in grads]
        return wide, list(rest), dict(options)

    def results(
        self, native: Native, call: Callable[..., Any], grads: list[Any], rest: list[Any], options: dict[str, Any]
    ) -> tuple[Any, Sequence[Any]]:
        """The norm, or None, and the gradients of a call of the native."""
        if native.applied is Applied.SLOT:
            return self.outcome(native, call(grads), grads)
        tensors = [paddle.zeros_like(grad) for _, grad in grads]
        for x, (_, grad) in zip(tensors, grads, strict=True):
            x.stop_gradient, x.grad = False, grad
        return self.outcome(native, call(tensors, *rest, **options), tensors)

    def outcome(self, native: Native, made: Any, tensors: list[Any]) -> tuple[Any, Sequence[Any]]:
        """The norm, or None, and the gradients after a call that returned this."""
        if native.applied is Applied.SLOT:
            return None, [grad for _, grad in made if grad is not None]
        return made if native.returns_norm else None, [grad for _, grad in self.grads(tensors, native) or []]

    def read(self, x: Any) -> tuple[np.ndarray, str]:
        return x.detach().astype("float64").numpy(), str(x.dtype).removeprefix("paddle.")
