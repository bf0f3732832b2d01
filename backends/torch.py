"""PyTorch tensors on any device, sparse COO gradients, ``torch.compile`` and the optimizers' step hook."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._utils import _flatten_dense_tensors

from gradclip.backend import Backend, Tensor, normal_factors
from gradclip.clip import clip_
from gradclip.errors import DTypeError, NotWritableError
from gradclip.norms import combine
from gradclip.rule import Rule, check_rule

_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_NAMES = {dtype: name for name, dtype in _DTYPES.items() if str(dtype) == f"torch.{name}"}
_ROW = 256  # elements to a float32 sum: 2 ulp for equal elements, where 4096 are off by 28
_FEW = 1 << 14  # up to so many elements a float64 sum is as fast, and a copy costs less than a call
_BLOCK = 1 << 20  # elements that are copied at once: those stay in the cache
_KIND = operator.attrgetter("dtype", "is_cpu", "layout", "requires_grad", "__class__")
_PLAIN = {
    (dtype, True, torch.strided, False, kind)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    for kind in (torch.Tensor, torch.nn.Parameter)
}


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


def _is_dense(x: Tensor) -> bool:
    """Whether the elements of a strided tensor fill one piece of memory: in order, channels last, or transposed."""
    if x.layout != torch.strided:
        return False
    if x.is_contiguous():
        return True
    expected = 1
    for stride, length in sorted(zip(x.stride(), x.shape, strict=True)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def _wide(x: Tensor) -> str:
    return "complex128" if x.is_complex() else "float64"


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of dense tensors, one after the other."""
    if len(tensors) == 1:
        return tensors[0]
    if set(map(torch.Tensor.dim, tensors)) == {1}:
        return torch.cat(tensors)  # a third of the time: no views to make
    return _flatten_dense_tensors(tensors)


def _by_rows(x: Tensor, order: float) -> float:
    """The norm of a dense tensor from those of short rows: as fast as memory, and right at any length."""
    flat = x.view(-1) if x.is_contiguous() else x.as_strided((x.numel(),), (1,))
    is_half = flat.dtype != torch.float32
    wide = torch.empty(min(_BLOCK, flat.numel())) if is_half else flat
    norms = []
    for block in flat.split(_BLOCK if is_half or order != 2 else 4 * _BLOCK):
        if is_half:
            block = wide[: block.numel()].copy_(block)
        whole = block.numel() - block.numel() % _ROW
        norms.append(_row_norm(block[:whole].view(-1, _ROW), order))
        if whole < block.numel():
            norms.append(float(torch.linalg.vector_norm(block[whole:], order, dtype=torch.float64)))
    return combine(norms, order)


def _row_norm(rows: Tensor, order: float) -> float:
    if order == 2:
        return float(torch.linalg.vector_norm(torch.linalg.vector_norm(rows, dim=1), dtype=torch.float64))
    powers = rows.abs() if order == 1 else rows.abs().pow_(order)  # torch's norms of these orders are running sums
    return float(powers.sum(1).sum(dtype=torch.float64)) ** (1 / order)


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
        if type(value) is float:
            return torch.scalar_tensor(value, dtype=_DTYPES[dtype], device=device)  # in half the time
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

    def plain(self, tensors: Sequence[Tensor]) -> str:
        if torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None:
            return ""
        kinds = set(map(_KIND, tensors))  # asked of all at once: one by one, 2,000 gradients would take longer than their norm
        if not kinds <= _PLAIN or len(set(map(id, tensors))) < len(tensors):
            return ""
        if not all(map(torch.numel, tensors)) or any(map(torch.is_inference, tensors)):
            return ""
        if not all(map(torch.Tensor.is_contiguous, tensors)) and not all(map(_is_dense, tensors)):
            return ""
        dtypes = {kind[0] for kind in kinds}
        if len(dtypes) == 1:
            return _NAMES[dtypes.pop()]
        return "" if torch.float64 in dtypes else "float32"

    def fast_norm(self, x: Tensor, order: float) -> float | None:
        if x.is_complex():
            return float(torch.linalg.vector_norm(x, order, dtype=torch.complex128)) if order == 2 else None
        if math.isinf(order):
            return float(torch.linalg.vector_norm(x, order))
        if x.numel() > _FEW and order >= 1 and x.dtype != torch.float64 and _is_dense(x):
            result = _by_rows(x, order)
            if 2.0 ** (-60 / order) < result < math.inf:  # no power that matters has left float32
                return result
        return float(torch.linalg.vector_norm(x, order, dtype=torch.float64))

    def euclidean(self, tensors: Sequence[Tensor]) -> list[Tensor | None]:
        # torch's float32 norms of a whole tensor are running sums; compiled, the cast is part of the loop
        return [torch.linalg.vector_norm(x, dtype=_DTYPES[_wide(x)]) for x in tensors]

    def fast_norms(self, tensors: Sequence[Tensor], order: float) -> list[float | None]:
        few = [not x.is_complex() and x.numel() <= _FEW and not math.isinf(order) for x in tensors]
        small = [x for x, is_small in zip(tensors, few, strict=True) if is_small]
        norms = iter(torch.stack(torch._foreach_norm(small, order, dtype=torch.float64)).tolist() if small else ())
        return [next(norms) if is_small else self.fast_norm(x, order) for x, is_small in zip(tensors, few, strict=True)]

    def fast_total(self, tensors: Sequence[Tensor], order: float) -> float | None:
        if not order >= 1:
            return None
        sizes = list(map(torch.numel, tensors))
        norms: list[float | None] = []
        small = tensors
        if max(sizes) > _FEW:
            norms = [self.fast_norm(x, order) for x, size in zip(tensors, sizes, strict=True) if size > _FEW]
            small = [x for x, size in zip(tensors, sizes, strict=True) if size <= _FEW]
        at_once = _BLOCK // _FEW if sum(sizes) > _BLOCK else max(len(small), 1)
        norms += [self.fast_norm(_flat(small[i : i + at_once]), order) for i in range(0, len(small), at_once)]
        return norms[0] if len(norms) == 1 else combine(norms, order)

    def copy(self, x: Tensor) -> Tensor:
        return x.clone()

    def scale(self, x: Tensor, coefficient: Any) -> Tensor:
        if isinstance(coefficient, torch.Tensor) and coefficient.device != x.device:
            coefficient = coefficient.to(x.device)
        if _at_once(coefficient) and x.is_floating_point():
            return x * coefficient  # torch multiplies halves in float32
        return super().scale(x, coefficient)

    def assign_(self, x: Tensor, value: Tensor) -> None:
        x.copy_(value)

    def scaled(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> list[Tensor]:
        if not plain.startswith("float") or plain == "float16" or not _at_once(coefficient):
            return super().scaled(tensors, coefficient)
        return list(torch._foreach_mul(tensors, torch.scalar_tensor(coefficient, dtype=_DTYPES[plain])))

    def scale_(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> None:
        if plain and _at_once(coefficient):
            # a 0-d tensor is several times faster here than a number, which would be rounded to bfloat16 first
            wide = torch.float64 if plain == "float64" else torch.float32
            torch._foreach_mul_(tensors, torch.scalar_tensor(coefficient, dtype=wide))
            return
        for x in tensors:
            values = self.values(x)
            values.copy_(self.scale(values, coefficient))


def _at_once(coefficient: Any) -> bool:
    """Whether a coefficient is a number that float32, in which torch multiplies halves, holds to its last bit."""
    return isinstance(coefficient, float) and len(normal_factors(coefficient)) == 1
