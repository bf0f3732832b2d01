"""Paddle tensors in dynamic mode, values of its static programs, SelectedRows, and objects for ``grad_clip=``.

The static programs are those of Paddle 3 (PIR). In its legacy ones Paddle 3.3.1's own ``paddle.sum`` and ``paddle.sqrt`` raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import paddle
from paddle.base.framework import EagerParamBase

from gradclip.backend import Tensor
from gradclip.backends import paddle_distributed as distributed
from gradclip.backends import paddle_memory as memory
from gradclip.backends import paddle_program as program
from gradclip.backends import paddle_results as results
from gradclip.backends.paddle_slot import grad_clip, slot
from gradclip.dropins.paddle import wanted
from gradclip.dtypes import COMPLEX, INTEGERS, WIDE, is_one_factor, normal_factors
from gradclip.errors import DTypeError, NotWritableError
from gradclip.legacy import LegacyBackend
from gradclip.parts import Parts, Processes

__all__ = ["PaddleBackend", "grad_clip"]

_Value = paddle.pir.Value


class PaddleBackend(LegacyBackend):
    """A parameter, and any leaf that wants a gradient, stands for it; any other tensor, and the second of a pair, is one."""

    name = "paddle"
    holds_gradients = True
    guards_squares = True

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, (paddle.Tensor, _Value))

    def dtype(self, x: Tensor) -> str:
        return str(x.dtype).removeprefix("paddle.")

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        if self.is_sparse(x):
            return (x.get_selected_rows().height(), *x.shape[1:])
        return tuple(None if length < 0 else length for length in x.shape)

    # ---- arithmetic: what a kernel lacks for half precision is computed in float32 ---------------------------------------

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x if self.dtype(x) == dtype else paddle.cast(x, dtype)

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        if self.is_tensor(value):
            made = self.cast(value, dtype)
        elif isinstance(value, int) and abs(value) > 1 << 53:  # a static program keeps a number as a float64
            high, low = divmod(value, 1 << 32)
            made = paddle.full([], high, dtype) * paddle.full([], 1 << 32, dtype) + paddle.full([], low, dtype)
        elif isinstance(value, (int, float)):
            made = paddle.full([], value, dtype)
        else:
            made = self.cast(paddle.to_tensor(value, dtype=dtype if dtype in INTEGERS else "float64"), dtype)
        return made if like is None else _beside(made, like)

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        whole = program.unbound(tensors)
        if whole is not None:
            return self.cast(whole, dtype)
        return paddle.stack([_beside(self.cast(x, dtype), tensors[0]) for x in tensors])

    def unstack(self, x: Tensor) -> list[Tensor]:
        return list(paddle.unbind(x))

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return paddle.reshape(x, list(shape))

    def abs(self, x: Tensor) -> Tensor:
        return paddle.abs(x)

    def sqrt(self, x: Tensor) -> Tensor:
        return paddle.sqrt(x)

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        # in float64, because a float32 sum along an axis is a running one: 4e-5 off for 4096 equal numbers
        dtype = self.dtype(x)
        wide = "complex128" if dtype in COMPLEX else "float64"
        return self.cast(paddle.sum(x, axis=axes, dtype=wide, keepdim=axes is not None), dtype)

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return paddle.max(x, axis=axes, keepdim=axes is not None)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        dtype = self.dtype(x if self.is_tensor(x) else y)
        wide = WIDE.get(dtype, dtype)
        if self.can_look(condition):
            x, y = self.asarray(x, wide, condition), self.asarray(y, wide, condition)
        else:
            x, y = (program.filled(z, wide, condition) if isinstance(z, float) else self.cast(z, wide) for z in (x, y))
            condition, x, y = program.broadcast(condition, x, y)
        return self.cast(paddle.where(condition, x, y), dtype)

    def maximum(self, x: Tensor, y: Any) -> Tensor:
        return self._between(paddle.maximum, x, y)

    def minimum(self, x: Tensor, y: Any) -> Tensor:
        return self._between(paddle.minimum, x, y)

    def _between(self, function: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Any) -> Tensor:
        dtype = self.dtype(x)
        wide = WIDE.get(dtype, "int64")
        return self.cast(function(self.cast(x, wide), self.asarray(y, wide, x)), dtype)

    def power(self, x: Tensor, exponent: float) -> Tensor:
        return paddle.pow(x, self.asarray(exponent, self.dtype(x), x))  # as a Python number it is rounded to float32

    def constant(self, value: float, like: Tensor) -> Any:
        in_float32 = self.can_look(like) or self.dtype(like) != "float64"  # as a static program keeps a Python number
        return value if in_float32 else self.asarray(value, "float64", like)

    def number(self, x: Tensor) -> float:
        return float(x.item())

    def size(self, x: Tensor) -> Any:
        shape = self.shape(x) or ()
        return paddle.numel(x) if None in shape else math.prod(length or 0 for length in shape)

    # ---- kinds of tensor -------------------------------------------------------------------------------------------------

    def is_parameter(self, x: object) -> bool:
        if isinstance(x, _Value):
            operation = x.get_defining_op()
            return operation is not None and operation.name() == "builtin.parameter"
        if isinstance(x, EagerParamBase):
            return True
        # a ``.grad`` is a leaf with stop_gradient=False too, but holds no gradient itself
        return isinstance(x, paddle.Tensor) and x.is_leaf and not x.stop_gradient and x._grad_ivar() is not None

    def gradient(self, parameter: Any) -> Tensor | None:
        gradient = None if isinstance(parameter, _Value) else parameter._grad_ivar()
        if gradient is None or gradient.stop_gradient or not gradient.is_leaf:
            return gradient  # only one of create_graph=True has a history
        return gradient.detach()  # a plain gradient says that it wants a derivative, as if it were an input

    def identity(self, x: Tensor) -> Hashable:
        if not self.can_look(x):
            return str(x.id)
        values = self.values(x)  # ``.grad`` is a new object each time
        return (values.data_ptr(), *values.shape, *values.strides) if values.size else id(x)

    def check(self, tensors: Sequence[Tensor]) -> None:
        if any(self.can_look(x) and x.is_sparse() for x in tensors):
            raise DTypeError("A gradient must be dense or SelectedRows.", "a sparse COO or CSR tensor", "call x.to_dense().")

    def is_concrete(self, tensors: Sequence[Tensor]) -> bool:
        if not all(self.can_look(x) and self.values(x).place.is_cpu_place() for x in tensors):
            return False
        return not paddle.is_grad_enabled() or all(x.stop_gradient or x.is_selected_rows() for x in tensors)

    def can_look(self, x: Tensor) -> bool:
        return isinstance(x, paddle.Tensor)

    def is_mutable(self, x: Tensor) -> bool:
        return self.can_look(x) and not _is_expanded(x)

    def check_writable(self, x: Tensor) -> None:
        if not self.can_look(x):
            hint = "use gradclip.clip, which returns new ones."
            raise NotWritableError("A value of a static program cannot be written in place.", f"{x.dtype} {x.shape}", hint)
        if x.persistable and x.stop_gradient:
            hint = "pass the parameters, or their gradients."
            raise NotWritableError("A buffer or an optimizer's state is no gradient.", f"persistable, {x.name}", hint)
        if x.is_leaf and not x.stop_gradient and x.grad_fn is not None:
            what = "This leaf wants a gradient and has none: it is a weight, or a gradient that an operation has used."
            hint = "call backward() first; a gradient is passed as x.detach(), which shares its memory."
            raise NotWritableError(what, f"{x.name}, shape {tuple(x.shape)}", hint)
        if _is_expanded(x):
            what, received = "An expanded gradient cannot be written in place.", f"strides {x.strides}, shape {tuple(x.shape)}"
            raise NotWritableError(what, received, "use gradclip.clip, or make it contiguous first.")

    def is_sparse(self, x: Tensor) -> bool:
        return self.can_look(x) and bool(x.is_selected_rows())

    def merge(self, x: Tensor) -> Tensor:
        if not self.is_sparse(x) or not x.rows():
            return x
        with paddle.no_grad():
            return paddle.nn.clip.merge_selected_rows(x)

    def values(self, x: Tensor) -> Tensor:
        if not self.is_sparse(x):
            # an operation on a ``.grad`` itself would make a leaf of it that wants a gradient of its own
            is_grad = isinstance(x, paddle.Tensor) and x.is_leaf and not x.stop_gradient and x.grad_fn is None
            return x.detach() if is_grad else x
        return x._get_tensor_from_selected_rows() if x.rows() else paddle.zeros(x.shape, x.dtype)  # no rows, no memory

    def with_values(self, x: Tensor, values: Tensor) -> Tensor:
        if not self.is_sparse(x):
            return values
        made = self.merge(x)  # in memory of its own
        self.assign_(self.values(made), values)
        return made

    def arithmetic(self, in_place: bool) -> AbstractContextManager[Any]:
        return paddle.no_grad() if in_place else nullcontext()

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        if self._is_pairs(tree):
            yield from ((f"{path}[{i}][1]", gradient) for i, (parameter, gradient) in enumerate(tree) if wanted(parameter))
        else:
            yield from super().walk(tree, path)

    def flatten(self, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        if not self._is_pairs(tree):
            return super().flatten(tree)

        def rebuild(new: list[Any]) -> Any:
            gradients = iter(new)
            return type(tree)([(p, next(gradients) if wanted(p) else g) for p, g in tree])

        return [gradient for _, gradient in self.walk(tree)], rebuild

    def owners(self, tree: Any) -> list[Any] | None:
        return [parameter for parameter, _ in tree if wanted(parameter)] if self._is_pairs(tree) else None

    def _is_pairs(self, tree: Any) -> bool:
        """Whether these are ``(parameter, gradient)`` pairs, as Paddle's optimizers and ``append_backward`` make them."""
        is_parameter, several = self.is_parameter, isinstance(tree, (list, tuple)) and bool(tree)
        return several and all(type(x) is tuple and [*map(is_parameter, x)] == [True, False] for x in tree)

    def parts(self, leaves: Sequence[Tensor | None], owners: Sequence[Any]) -> Parts | None:
        return distributed.parts(leaves, owners)

    def together(self, x: Tensor) -> Tensor:
        return distributed.together(x)

    def group(self, reduce: object) -> Processes | None:
        return distributed.group_of(reduce)

    def is_recorded(self, tensors: Sequence[Tensor]) -> bool:
        return paddle.is_grad_enabled() and not all(x.is_leaf for x in tensors if self.can_look(x))  # a gradient is a leaf

    def detach(self, x: Tensor) -> Tensor:
        return x.detach()

    def plain(self, tensors: Sequence[Tensor]) -> str:
        return memory.plain(tensors)

    def fast_norm(self, x: Tensor, order: float) -> float | None:
        return memory.norm(x, order)

    def fast_norms(self, tensors: Sequence[Tensor], order: float) -> list[float | None]:
        return memory.norms(tensors, order)

    def fast_total(self, tensors: Sequence[Tensor], order: float) -> float | None:
        return memory.total(tensors, order)

    def euclidean(self, tensors: Sequence[Tensor]) -> list[Tensor | None]:
        in_program = [isinstance(x, _Value) and self.dtype(x) in program.NARROW for x in tensors]
        traced = [x for x, is_in_program in zip(tensors, in_program, strict=True) if is_in_program]
        found = iter(program.norms(traced, "float32") if traced else ())
        return [next(found) if is_in_program else None for is_in_program in in_program]

    def euclidean_total(self, tensors: Sequence[Tensor]) -> Tensor | None:
        if not all(isinstance(x, _Value) and self.dtype(x) in program.NARROW for x in tensors):
            return None
        return program.total(tensors)

    def copy(self, x: Tensor) -> Tensor:
        return self.merge(x) if self.is_sparse(x) else x.clone() if self.can_look(x) else x

    def scale(self, x: Tensor, coefficient: Any) -> Tensor:
        dtype = self.dtype(x)
        if dtype in COMPLEX:  # by parts: a product of complex numbers makes NaN of the other part of an infinite one
            factor = coefficient if isinstance(coefficient, float) else paddle.unsqueeze(coefficient, -1)
            return paddle.as_complex(self.scale(paddle.as_real(x), factor))
        wide = self.cast(x, WIDE[dtype])
        if not isinstance(coefficient, float) and isinstance(x, _Value):  # times a 1 every bit stays
            return self.cast(program.times(wide, self.cast(coefficient, WIDE[dtype])), dtype)
        if not isinstance(coefficient, float):
            return super().scale(x, _beside(coefficient, x))
        for factor in normal_factors(coefficient):
            wide = wide * self.asarray(factor, WIDE[dtype], x)  # times a Python number, -0 becomes 0
        return self.cast(wide, dtype)

    def assign_(self, x: Tensor, value: Tensor) -> None:
        if not self.is_sparse(x):
            x.copy_(value, True)
        elif x.rows():
            target, source = x.get_selected_rows(), value.get_selected_rows()
            target.get_tensor()._share_data_with(source.get_tensor())
            target.set_rows(source.rows())
            target.sync_index()

    def scaled(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> list[Tensor]:
        each = coefficient if isinstance(coefficient, list) else [coefficient] * len(tensors)
        if all(isinstance(x, _Value) and isinstance(c, _Value) and not c.shape for x, c in zip(tensors, each, strict=True)):
            return program.scaled(tensors, coefficient, self.scale)
        if not plain or not results.knows(tensors[0]) or not _are_single_factors(each):
            return super().scaled(tensors, coefficient)
        return results.scaled(tensors, each)

    def clamp(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        if isinstance(x, _Value) and isinstance(lower, float) and isinstance(upper, float):
            clipped = program.clamped(x, lower, upper)
            if clipped is not None:
                return clipped
        return super().clamp(x, lower, upper)

    def clamped(self, tensors: Sequence[Tensor], lower: float, upper: float, keep: bool = False) -> list[Tensor]:
        if not results.knows(tensors[0]):
            return super().clamped(tensors, lower, upper)
        return results.clamped(tensors, lower, upper, keep)

    def scale_(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> None:
        if plain and is_one_factor(coefficient):
            results.scale_(tensors, coefficient, memory.kind_of_plain(tensors))
            return
        for x in tensors:
            if isinstance(coefficient, float) and self.dtype(x) in memory.SINGLE:
                values = [self.values(x)]
                kind = memory.kind_of(values)
                for factor in normal_factors(coefficient):
                    results.scale_(values, factor, kind)
            else:
                merged = self.merge(x)  # a coefficient for each row is one for each row of these
                self.assign_(x, self.with_values(merged, self.scale(self.values(merged), coefficient)))

    def clamp_(self, tensors: Sequence[Tensor], lower: float, upper: float) -> None:
        results.clamp_(tensors, lower, upper)

    def slot(self, cls: type) -> type:
        return slot(cls)


def _are_single_factors(coefficients: list[Any]) -> bool:
    """Whether float32 holds each of several numbers to its last bit, sooner told of all."""
    if set(map(type, coefficients)) != {float}:
        return False
    return min(coefficients) >= 2.0**-126 or all(map(is_one_factor, coefficients))


def _beside(x: Tensor, like: Tensor) -> Tensor:
    """``x`` on the device of ``like``; in a static program that is the executor's business."""
    return x if isinstance(x, _Value) or isinstance(like, _Value) or x.place == like.place else x.to(like.place)


def _is_expanded(x: Tensor) -> bool:
    return not x.is_selected_rows() and any(stride == 0 and n > 1 for stride, n in zip(x.strides, x.shape, strict=True))
