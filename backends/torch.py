"""PyTorch tensors on any device, sparse COO gradients, ``torch.compile`` and the optimizers' step hook."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gradclip.backend import Backend, Tensor, normal_factors
from gradclip.clip import clip_
from gradclip.errors import DTypeError, NotWritableError
from gradclip.rule import Rule, check_rule

_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_NAMES = {dtype: name for name, dtype in _DTYPES.items() if str(dtype) == f"torch.{name}"}
_ROW = 256  # elements to a float32 sum: 2 ulp for equal elements, where 4096 are off by 28
_FEW = 1 << 14  # up to so many elements a float64 sum is as fast
_LEAST, _MOST = 2.0**-30, 2.0**30  # between them no float32 square has overflowed, or vanished that matters


def step_pre_hook(rule: Rule) -> Callable[[torch.optim.Optimizer, Any, Any], None]:
    """A hook that clips the gradients of an optimizer's parameters before each step.

    Args:
        rule: of any dialect but one that sums over examples. All parameter groups are clipped together.

    Returns:
        A hook for ``optimizer.register_step_pre_hook``, which returns a handle whose ``remove()`` takes it out again.

    Raises:
        TypeError: if ``rule`` is none.
        ValueError: for a rule whose result has another shape than the gradient.

    >>> import torch, gradclip.backends.torch
    >>> from gradclip.dialects import torch as dialect
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = torch.optim.SGD([weight], lr=1.0)
    >>> handle = optimizer.register_step_pre_hook(gradclip.backends.torch.step_pre_hook(dialect.clip_grad_norm(1.0)))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> optimizer.step()
    >>> weight.data
    tensor([-0.6000, -0.8000])
    >>> handle.remove()
    """
    check_rule(rule, keeps_shape=True)

    def clip_before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        clip_([parameter for group in optimizer.param_groups for parameter in group["params"]], rule)

    return clip_before_step


class TorchBackend(Backend):
    """A ``torch.nn.Parameter`` stands for its ``.grad``; any other tensor is a gradient."""

    name = "torch"
    holds_gradients = True

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, torch.Tensor)

    def is_parameter(self, x: object) -> bool:
        return isinstance(x, torch.nn.Parameter)

    def dtype(self, x: Tensor) -> str:
        return _NAMES[x.dtype]

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        return tuple(x.shape)

    # ---- arithmetic ------------------------------------------------------------------------------------------------------

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x.to(_DTYPES[dtype])

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        device = None if like is None else like.device
        return torch.as_tensor(value, dtype=_DTYPES[dtype], device=device)

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        return torch.stack([x.to(tensors[0].device, _DTYPES[dtype]) for x in tensors])

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return x.reshape(shape)

    def abs(self, x: Tensor) -> Tensor:
        return x.abs()

    def sqrt(self, x: Tensor) -> Tensor:
        return x.sqrt()

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return x.sum() if axes is None else x.sum(axes, keepdim=True)

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return x.amax() if axes is None else x.amax(axes, keepdim=True)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        return torch.where(condition, x, y)

    def maximum(self, x: Tensor, y: Any) -> Tensor:
        return torch.maximum(x, y.to(x)) if isinstance(y, torch.Tensor) else x.clamp(min=y)

    def minimum(self, x: Tensor, y: Any) -> Tensor:
        return torch.minimum(x, y.to(x)) if isinstance(y, torch.Tensor) else x.clamp(max=y)

    def number(self, x: Tensor) -> float:
        return float(x.detach())

    # ---- kinds of tensor -------------------------------------------------------------------------------------------------

    def check(self, tensors: Sequence[Tensor]) -> None:
        for x in tensors:
            if x.layout not in (torch.strided, torch.sparse_coo):
                what, hint = "A gradient must be strided or sparse COO.", "x.to_sparse_coo() makes it one."
                raise DTypeError(what, f"layout={x.layout}", hint)
        if len({x.is_meta for x in tensors}) > 1:
            what, hint = "Tensors on the meta device have no values to clip others by.", "clip them by themselves."
            raise DTypeError(what, ", ".join(sorted({f"device={x.device}" for x in tensors})), hint)

    def is_concrete(self, tensors: Sequence[Tensor]) -> bool:
        if torch.compiler.is_compiling():
            return False
        recorded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor
        return not recorded and all(x.device.type == "cpu" and not wrapped(x) for x in tensors)

    def can_look(self, x: Tensor) -> bool:
        return not (torch.compiler.is_compiling() or x.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(x))

    def is_mutable(self, x: Tensor) -> bool:
        return True

    def check_writable(self, x: Tensor) -> None:
        if not torch.compiler.is_compiling() and x.is_inference() and not torch.is_inference_mode_enabled():
            what = "A tensor made in inference mode cannot be written in place outside of it."
            raise NotWritableError(what, f"shape {tuple(x.shape)}", "use gradclip.clip, or clone it first.")
        if x.is_sparse or x.is_contiguous():
            return
        shared = (stride == 0 and length > 1 for stride, length in zip(x.stride(), x.shape, strict=True))
        if x.numel() and any(shared):  # the strides of nothing mean nothing
            received = f"strides {x.stride()}, shape {tuple(x.shape)}"
            hint = "use gradclip.clip, or make it contiguous first."
            raise NotWritableError("An expanded gradient cannot be written in place.", received, hint)

    def is_sparse(self, x: Tensor) -> bool:
        return bool(x.is_sparse)

    def merge(self, x: Tensor) -> Tensor:
        return x.coalesce() if x.is_sparse else x

    def values(self, x: Tensor) -> Tensor:
        return x._values() if x.is_sparse else x

    def with_values(self, x: Tensor, values: Tensor) -> Tensor:
        if not x.is_sparse:
            return values
        return torch.sparse_coo_tensor(
            x._indices().clone(), values, x.shape, is_coalesced=x.is_coalesced(), check_invariants=False
        )

    def arithmetic(self, in_place: bool) -> AbstractContextManager[Any]:
        return torch.no_grad() if in_place else nullcontext()

    # ---- the fast ways ---------------------------------------------------------------------------------------------------

    def detach(self, x: Tensor) -> Tensor:
        return x.detach()

    def size(self, x: Tensor) -> Any:
        return x.numel()

    def fast_norm(self, x: Tensor, order: float) -> float | None:
        if x.is_complex() and order != 2:
            return None
        if math.isinf(order):
            return float(torch.linalg.vector_norm(x, order))
        if order != 2 or x.is_complex() or x.dtype == torch.float64:
            return float(torch.linalg.vector_norm(x, order, dtype=torch.complex128 if x.is_complex() else torch.float64))
        result = self._euclidean(x.float())
        if _LEAST < result < _MOST:
            return result
        return float(torch.linalg.vector_norm(x, dtype=torch.float64))  # squares that left float32, or an infinity, or zeros

    def fast_norms(self, tensors: Sequence[Tensor], order: float) -> list[float | None]:
        few = [not x.is_complex() and x.numel() <= _FEW and not math.isinf(order) for x in tensors]
        small = [x for x, is_small in zip(tensors, few, strict=True) if is_small]
        norms = iter(torch.stack(torch._foreach_norm(small, order, dtype=torch.float64)).tolist() if small else ())
        return [next(norms) if is_small else self.fast_norm(x, order) for x, is_small in zip(tensors, few, strict=True)]

    def _euclidean(self, x: Tensor) -> float:
        if x.numel() <= _ROW:
            return float(torch.linalg.vector_norm(x))
        if x.numel() <= _FEW or not x.is_contiguous():
            return float(torch.linalg.vector_norm(x, dtype=torch.float64))
        flat = x.view(-1)
        whole = flat.numel() - flat.numel() % _ROW
        rows = torch.linalg.vector_norm(flat[:whole].view(-1, _ROW), dim=1)
        return float(torch.linalg.vector_norm(torch.cat([rows.double(), flat[whole:].double()])))

    def copy(self, x: Tensor) -> Tensor:
        return x.clone()

    def scale(self, x: Tensor, coefficient: Any) -> Tensor:
        if isinstance(coefficient, torch.Tensor) and coefficient.device != x.device:
            coefficient = coefficient.to(x.device)
        return super().scale(x, coefficient)

    def assign_(self, x: Tensor, value: Tensor) -> None:
        x.copy_(value)

    def scale_(self, tensors: Sequence[Tensor], coefficient: Any) -> None:
        together: list[Tensor] = []
        rest: list[Tensor] = []
        is_number = isinstance(coefficient, float)
        for x in tensors:
            exact = is_number and not x.is_sparse and x.dtype in (torch.float32, torch.float64)
            (together if exact else rest).append(x)
        for factor in normal_factors(coefficient) if together else ():
            torch._foreach_mul_(together, torch.tensor(factor, dtype=torch.float64))  # faster than with a Python number
        for x in rest:
            values = self.values(x)
            if is_number and values.dtype != torch.bfloat16:
                for factor in normal_factors(coefficient):
                    values.mul_(factor)
            else:
                values.copy_(self.scale(values, coefficient))
