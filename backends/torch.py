"""PyTorch tensors on any device, sparse COO gradients, ``torch.compile`` and the optimizers' step hook."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gradclip.backend import Tensor
from gradclip.backends import torch_memory, torch_operator
from gradclip.backends.torch_operator import plain as plain_while_compiling
from gradclip.backends.torch_step import step_pre_hook
from gradclip.dtypes import is_one_factor
from gradclip.errors import DTypeError, NotWritableError
from gradclip.legacy import LegacyBackend
from gradclip.parts import Parts, Processes

__all__ = ["TorchBackend", "step_pre_hook"]

_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_NAMES = {dtype: name for name, dtype in _DTYPES.items() if str(dtype) == f"torch.{name}"}
_PLAIN = {torch.float32, torch.float64, torch.bfloat16, torch.float16}
_dtype, _layout, _is_cpu, _requires_grad = map(operator.attrgetter, ("dtype", "layout", "is_cpu", "requires_grad"))
_FEW = 1 << 14  # up to so many elements a float64 sum is as fast
_STRIDED = {torch.strided}


def _wide(x: Tensor) -> str:
    return "complex128" if x.is_complex() else "float64"


def _is_input_of_a_transform(x: Tensor) -> bool:
    """Whether this stands for a gradient inside ``torch.func.grad`` or the like, where it is a leaf that requires one too."""
    if torch.compiler.is_compiling():
        return torch_operator.is_transformed()
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def _beside(tensors: Sequence[Tensor]) -> bool:
    """Whether all are on one device."""
    return len({x.device for x in tensors}) == 1


class TorchBackend(LegacyBackend):
    """A ``torch.nn.Parameter``, and any leaf that requires a gradient, stands for its ``.grad``; all else is a gradient."""

    name = "torch"
    holds_gradients = True
    whole = "gradclip.backends.torch_operator:whole"

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, torch.Tensor)

    def is_parameter(self, x: Any) -> bool:
        if x.requires_grad and x.is_leaf and type(x) is not torch.nn.Parameter:
            return not _is_input_of_a_transform(x)
        return isinstance(x, torch.nn.Parameter)

    def identity(self, x: Tensor) -> Hashable:
        # compiled, a set of tensors knows them apart; their ids would be those of one step, and each step compiled again
        return x if torch.compiler.is_compiling() else id(x)

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
            number = _in_range(value, _DTYPES[dtype])
            return torch.scalar_tensor(number, dtype=_DTYPES[dtype], device=device)  # in half the time
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
        # compiled for the host a float32 sum is a running one; torch's own is not
        wide = _DTYPES[_wide(x)] if torch.compiler.is_compiling() and x.is_cpu else None
        return (x.sum(dtype=wide) if axes is None else x.sum(axes, keepdim=True, dtype=wide)).to(x.dtype)

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return x.amax() if axes is None else x.amax(axes, keepdim=True)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        return torch.where(condition, x, y)

    def maximum(self, x: Tensor, y: Any) -> Tensor:
        return torch.maximum(x, y.to(x)) if isinstance(y, torch.Tensor) else x.clamp(min=_in_range(y, x.dtype))

    def minimum(self, x: Tensor, y: Any) -> Tensor:
        return torch.minimum(x, y.to(x)) if isinstance(y, torch.Tensor) else x.clamp(max=_in_range(y, x.dtype))

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
        wrapped, records = torch._C._functorch.is_functorch_wrapped_tensor, torch.is_grad_enabled()
        return not any(not x.is_cpu or (records and x.requires_grad) or wrapped(x) for x in tensors)

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

    # ---- several processes -----------------------------------------------------------------------------------------------

    def parts(self, leaves: Sequence[Tensor | None], owners: Sequence[Any]) -> Parts | None:
        # whoever has a DTensor has imported their module, which takes a second
        if torch.compiler.is_compiling() or "torch.distributed.tensor" not in sys.modules:
            return None
        from gradclip.backends import torch_distributed

        return torch_distributed.parts(leaves, owners)

    def is_recorded(self, tensors: Sequence[Tensor]) -> bool:
        return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)

    def together(self, x: Tensor) -> Tensor:
        return x if type(x) in torch_memory.TYPES or not hasattr(x, "full_tensor") else x.full_tensor()

    def group(self, reduce: object) -> Processes | None:
        if not torch.distributed.is_available():
            return None
        from gradclip.backends import torch_distributed

        return torch_distributed.group_of(reduce)

    # ---- the fast ways ---------------------------------------------------------------------------------------------------

    def detach(self, x: Tensor) -> Tensor:
        return x.detach()

    def size(self, x: Tensor) -> Any:
        return x.numel()

    def plain(self, tensors: Sequence[Tensor]) -> str:
        if torch.compiler.is_compiling():  # to ask here spares many questions, which would be asked again in each compiled call
            return plain_while_compiling(tensors)
        if torch._C._functorch.maybe_current_level() is not None:
            return ""
        # asked of all at once, one thing after the other: one by one, 2,000 gradients would take longer than their norm
        dtypes = set(map(_dtype, tensors))
        if not (dtypes <= _PLAIN and set(map(type, tensors)) <= torch_memory.TYPES and set(map(_layout, tensors)) == _STRIDED):
            return ""
        pointers = set(map(torch.Tensor.data_ptr, tensors))
        if len(pointers) < len(tensors) or 0 in pointers or any(map(_requires_grad, tensors)):  # the same one twice, or empty
            return ""
        if any(map(torch.Tensor.is_inference, tensors)) or not (all(map(_is_cpu, tensors)) or _beside(tensors)):
            return ""
        if not all(map(torch.Tensor.is_contiguous, tensors)) and not all(map(torch_memory.is_dense, tensors)):
            return ""
        if len(dtypes) == 1:
            return _NAMES[dtypes.pop()]
        return "" if torch.float64 in dtypes else "float32"

    def fast_norm(self, x: Tensor, order: float) -> float | None:
        if x.is_complex():
            return float(torch.linalg.vector_norm(x, order, dtype=torch.complex128)) if order == 2 else None
        if math.isinf(order):
            return float(torch.linalg.vector_norm(x, order))
        kind = torch_memory.kind_of([x]) if order == 2 else None
        if kind is not None:
            return math.sqrt(torch_memory.squares([x], kind)[0])
        if x.numel() > _FEW and order >= 1 and x.dtype != torch.float64 and torch_memory.is_dense(x):
            result = torch_memory.by_rows(x, order)
            if 2.0 ** (-60 / order) < result < math.inf:  # no power that matters has left float32
                return result
        return float(torch.linalg.vector_norm(x, order, dtype=torch.float64))

    def euclidean(self, tensors: Sequence[Tensor]) -> list[Tensor | None]:
        if torch_operator.takes(tensors, measures=True):
            return list(torch_operator.norms(tensors))
        # torch's float32 norms of a whole tensor are running sums; compiled, the cast is part of the loop
        if not torch.compiler.is_compiling() and self.plain(tensors):
            return list(torch._foreach_norm(tensors, 2.0, dtype=torch.float64))
        return [torch.linalg.vector_norm(x, dtype=_DTYPES[_wide(x)]) for x in tensors]

    def euclidean_total(self, tensors: Sequence[Tensor]) -> Tensor | None:
        if not torch_operator.takes(tensors, measures=True):
            return None
        each = torch_operator.norms(tensors)
        return torch.sqrt(torch.sum(each * each))

    def fast_norms(self, tensors: Sequence[Tensor], order: float) -> list[float | None]:
        kind = torch_memory.kind_of(tensors) if order == 2 else None
        if kind is not None:
            return list(map(math.sqrt, torch_memory.squares(tensors, kind)))
        few = [not x.is_complex() and x.numel() <= _FEW and not math.isinf(order) for x in tensors]
        small = [x for x, is_small in zip(tensors, few, strict=True) if is_small]
        norms = iter(torch.stack(torch._foreach_norm(small, order, dtype=torch.float64)).tolist() if small else ())
        return [next(norms) if is_small else self.fast_norm(x, order) for x, is_small in zip(tensors, few, strict=True)]

    def fast_total(self, tensors: Sequence[Tensor], order: float) -> float | None:
        kind = torch_memory.kind_of(tensors, "plain") if order == 2 else None
        return None if kind is None else math.sqrt(sum(torch_memory.squares(tensors, kind)))

    def copy(self, x: Tensor) -> Tensor:
        return x.clone()

    def scale(self, x: Tensor, coefficient: Any) -> Tensor:
        if isinstance(coefficient, torch.Tensor) and coefficient.device != x.device:
            coefficient = coefficient.to(x.device)
        if is_one_factor(coefficient) and x.is_floating_point():
            return x * coefficient  # torch multiplies halves in float32
        return super().scale(x, coefficient)

    def clamps_together(self, tensors: Sequence[Tensor]) -> bool:
        # a single element may be a negated view, which no operator can be given to write
        return torch_operator.takes_bounds(tensors) and all(x.numel() != 1 for x in tensors)

    def clamp_(self, tensors: Sequence[Tensor], lower: float, upper: float) -> None:
        upper = max(lower, upper)
        if torch.compiler.is_compiling():
            if self.clamps_together(tensors):
                torch_operator.clamp_(tensors, lower, upper)
            else:
                super().clamp_(tensors, lower, upper)
            return
        kind = torch_memory.kind_of(tensors, "plain")
        if kind is not None and torch_memory.are_as_stored(tensors, sizes := torch_memory.sizes_of(tensors)):
            torch_memory.clamp(tensors, sizes, kind, lower, upper)
            torch.autograd.graph.increment_version(tensors)
            return
        if tensors[0].is_cpu or max(abs(lower), abs(upper)) > 65504.0:  # each has the bounds in the range of its own dtype
            for x in tensors:
                x.clamp_(_in_range(lower, x.dtype), _in_range(upper, x.dtype))
        else:
            torch._foreach_clamp_max_(tensors, upper)
            torch._foreach_clamp_min_(tensors, lower)

    def assign_(self, x: Tensor, value: Tensor) -> None:
        x.copy_(value)

    def scaled(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> list[Tensor]:
        if torch.compiler.is_compiling():
            return super().scaled(tensors, coefficient)
        kind = torch_memory.kind_of(tensors, plain) if plain else None
        are_numbers = all(map(is_one_factor, coefficient)) if isinstance(coefficient, list) else is_one_factor(coefficient)
        if kind is not None and are_numbers and torch_memory.are_as_stored(tensors, torch_memory.sizes_of(tensors)):
            return torch_memory.multiplied(tensors, kind, coefficient)
        if not plain.startswith("float") or plain == "float16" or not is_one_factor(coefficient):
            return super().scaled(tensors, coefficient)
        return list(torch._foreach_mul(tensors, _number(coefficient, _DTYPES[plain])))

    def scale_(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> None:
        is_tensor = isinstance(coefficient, torch.Tensor)
        plain = "" if torch.compiler.is_compiling() else plain
        kind = torch_memory.kind_of(tensors, plain) if plain and is_one_factor(coefficient) else None
        if kind is not None:
            torch_memory.multiply_(tensors, kind, coefficient)
            return
        if plain and (is_one_factor(coefficient) or (is_tensor and coefficient.dim() == 0)):
            # a 0-d tensor is several times faster here than a number, which would be rounded to bfloat16 first; times a 1
            # that nobody has looked at every bit stays
            wide = torch.float64 if plain == "float64" else torch.float32
            factor = coefficient.to(tensors[0].device, wide) if is_tensor else _number(coefficient, wide)
            torch._foreach_mul_(tensors, factor)
            return
        if is_tensor and coefficient.dim() == 0 and coefficient.is_cpu and torch_operator.takes(tensors):
            # a single element may be a negated view, which no operator can be given to write
            torch_operator.scale_([x for x in tensors if x.numel() != 1], coefficient)
            tensors = [x for x in tensors if x.numel() == 1]
        for x in tensors:
            values = self.values(x)
            values.copy_(self.scale(values, coefficient))


def _in_range(value: Any, dtype: torch.dtype) -> Any:
    """A number as the dtype has it: beyond its greatest torch raises, where it is infinite."""
    if not isinstance(value, float) or not abs(value) > 65504.0 or not (dtype.is_floating_point or dtype.is_complex):
        return value
    return math.copysign(math.inf, value) if abs(value) > torch.finfo(dtype).max else value


def _number(value: float, dtype: torch.dtype) -> Tensor:
    """On the host, whatever device is the default: torch's operations take such a number beside tensors of any other."""
    return torch.scalar_tensor(value, dtype=dtype, device="cpu")
