"""PyTorch's tensors, for the calls that are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gradclip.natives import Applied, Native
from replaced.compare import Table, Untraced

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Kit"]


@dataclass
class Kit(Untraced):
    """Copies and reads tensors."""

    table: Table

    def is_tracing(self) -> bool:
        return bool(torch.compiler.is_compiling())

    def listed(self, given: Any, native: Native) -> list[Any]:
        return [given] if isinstance(given, torch.Tensor) else list(given)

    def grads(self, tensors: list[Any], native: Native) -> list[Any] | None:
        """The gradients; None if one has no plain numbers."""
        found = [x.grad for x in tensors if x.grad is not None] if native.applied is Applied.PARAMETERS else tensors
        return found if all(map(_is_plain, found)) else None

    def copies(
        self, grads: list[Any], rest: Sequence[Any], options: Mapping[str, Any], *, is_wide: bool
    ) -> tuple[list[Any], list[Any], dict[str, Any]]:
        """The arguments with copies of the tensors, in float64 if wide."""

        def copied(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            wide = torch.complex128 if x.is_complex() else torch.float64
            return x.detach().to(wide if is_wide else x.dtype, copy=True)

        return [copied(x) for x in grads], [copied(x) for x in rest], {name: copied(x) for name, x in options.items()}

    def results(
        self, native: Native, call: Callable[..., Any], grads: list[Any], rest: list[Any], options: dict[str, Any]
    ) -> tuple[Any, Sequence[Any]]:
        """The norm, or None, and the gradients of a call of the native."""
        tensors = grads
        if native.applied is Applied.PARAMETERS:
            tensors = [torch.empty_like(x, requires_grad=True) for x in grads]
            for x, grad in zip(tensors, grads, strict=True):
                x.grad = grad
        return self.outcome(native, call(tensors, *rest, **options), tensors)

    def outcome(self, native: Native, made: Any, tensors: list[Any]) -> tuple[Any, Sequence[Any]]:
        """The norm, or None, and the gradients after a call that returned this."""
        return made if native.returns_norm or native.applied is Applied.NORM else None, self.grads(tensors, native) or []

    def read(self, x: Any) -> tuple[np.ndarray, str]:
        x = torch.as_tensor(x).detach().cpu()
        x = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
        return x.to(torch.float64, copy=True).numpy(), str(x.dtype).removeprefix("torch.")


def _is_plain(x: Any) -> bool:
    is_real = type(x) in (torch.Tensor, torch.nn.Parameter) and x.layout is torch.strided and x.device.type != "meta"
    return is_real and (x.is_floating_point() or x.is_complex())
