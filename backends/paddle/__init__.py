"""Paddle tensors in dynamic mode, values of its static programs, SelectedRows, and objects for ``grad_clip=``.

The static programs are those of Paddle 3 (PIR). In its legacy ones Paddle 3.3.1's own ``paddle.sum`` and ``paddle.sqrt`` raise.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import paddle

from gradclip.backends.host.lane import FUSED
from gradclip.backends.paddle import lanes, program, versions
from gradclip.backends.paddle.containers import PaddleContainers
from gradclip.backends.paddle.distributed import PaddleDistributed
from gradclip.backends.paddle.reference import PaddleLane, beside, filled, values
from gradclip.core import tracing
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import COMPLEX, INTEGERS, WIDE
from gradclip.core.errors import DTypeError, NotWritableError, TensorTypeError
from gradclip.core.lane import Lane
from gradclip.core.memory import Layout, layout

if TYPE_CHECKING:
    from gradclip.backends.paddle.slot import grad_clip

__all__ = ["PaddleBackend", "grad_clip"]


def __getattr__(name: str) -> Any:
    if name == "grad_clip":  # it is above the engine, which a backend does not import
        from gradclip.backends.paddle.slot import grad_clip

        return grad_clip
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_FOLDERS = [os.path.dirname(os.path.dirname(tracing.__file__)), *map(os.path.dirname, __path__)]  # all rooms of gradclip
versions.run_between_programs(tracing.MARKED, [*_FOLDERS, *map(os.path.realpath, _FOLDERS)])


class DynamicModeError(TensorTypeError, RuntimeError):
    """Gradients that are clipped in dynamic mode only; Paddle raises a RuntimeError."""


class PaddleBackend(Backend):
    """A parameter, and any leaf that requires a gradient, stands for its gradient. Any other tensor is a gradient."""

    name = "paddle"
    holds_gradients = True
    slot = "gradclip.backends.paddle.slot:slot"
    reference = PaddleLane
    fused = FUSED
    containers = PaddleContainers()
    distributed = PaddleDistributed()

    # ---- describe -----------------------------------------------------------------------------------------------------------

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, (paddle.Tensor, versions.Value))

    def dtype(self, x: Tensor) -> str:
        return versions.dtype(x.dtype)

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        if self.is_sparse(x):
            return (x.get_selected_rows().height(), *x.shape[1:])
        return tuple(None if length < 0 else length for length in x.shape)

    def size(self, x: Tensor) -> Any:
        shape = self.shape(x) or ()
        return paddle.numel(x) if None in shape else math.prod(length or 0 for length in shape)

    def identity(self, x: Tensor) -> Hashable:
        if not self.can_read(x):
            return str(x.id)
        return super().identity(x)  # ``.grad`` is a new object each time

    def layout(self, x: Tensor) -> Layout | None:
        if not self.can_read(x):
            return None
        tensor = values(x)
        if not tensor.size or not tensor.data_ptr():
            return None
        itemsize = tensor.element_size()
        return layout(tensor.data_ptr(), itemsize, tensor.shape, [stride * itemsize for stride in tensor.strides])

    def refused(self, x: object) -> TensorTypeError | None:
        if not isinstance(x, paddle.static.Variable):
            return None
        what = "this API can only run in dynamic mode, and in the static programs of Paddle 3."
        hint = "build the program without FLAGS_enable_pir_api=0, or clip by paddle.nn's own classes."
        return DynamicModeError(what, "a variable of a program of the legacy representation", hint)

    def check(self, tensors: Sequence[Tensor]) -> None:
        if versions.is_static() and any(map(self.can_read, tensors)):
            what, received = "this API can only run in dynamic mode.", "a tensor of dynamic mode, in static mode"
            raise DynamicModeError(what, received, "call paddle.disable_static() before, or clip values of the program.")
        if any(self.can_read(x) and x.is_sparse() for x in tensors):
            raise DTypeError("A gradient must be dense or SelectedRows.", "a sparse COO or CSR tensor", "call x.to_dense().")

    def check_writable(self, x: Tensor) -> None:
        if not self.can_read(x):
            hint = "use gradclip.clip, which returns new ones."
            raise NotWritableError("A value of a static program cannot be written in place.", f"{x.dtype} {x.shape}", hint)
        if x.persistable and x.stop_gradient:
            hint = "pass the parameters, or their gradients."
            raise NotWritableError("A buffer or an optimizer's state is not a gradient.", f"persistable, {x.name}", hint)
        if x.is_leaf and not x.stop_gradient and x.grad_fn is not None:
            what = "This leaf requires a gradient and has none: it is a weight, or a gradient that an operation has used."
            hint = "call backward() first; a gradient is passed as x.detach(), which shares its memory."
            raise NotWritableError(what, f"{x.name}, shape {tuple(x.shape)}", hint)
        if not x.is_selected_rows() and any(stride == 0 and n > 1 for stride, n in zip(x.strides, x.shape, strict=True)):
            what, received = "An expanded gradient cannot be written in place.", f"strides {x.strides}, shape {tuple(x.shape)}"
            raise NotWritableError(what, received, "use gradclip.clip, or make it contiguous first.")

    def reads_free(self, tensors: Sequence[Tensor]) -> bool:
        if not all(self.can_read(x) for x in tensors) or not lanes.on_host([values(x) for x in tensors]):
            return False
        return not paddle.is_grad_enabled() or all(x.stop_gradient or x.is_selected_rows() for x in tensors)

    def can_read(self, x: Tensor) -> bool:
        return isinstance(x, paddle.Tensor)

    def is_sparse(self, x: Tensor) -> bool:
        return self.can_read(x) and bool(x.is_selected_rows())

    def rows(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        if not self.is_sparse(x):
            return values(x), lambda new: new
        merged = versions.merged(x)

        def rebuild(new: Tensor) -> Tensor:
            made = versions.merged(merged)  # a copy
            if made.rows():
                versions.values_of_rows(made).copy_(new, True)
            return made

        return versions.values_of_rows(merged), rebuild

    # ---- calculate: in float32 where Paddle has no half-precision kernel -----------------------------------------------------

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
        return made if like is None else beside(made, like)

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        return paddle.stack([beside(self.cast(x, dtype), tensors[0]) for x in tensors])

    def abs(self, x: Tensor) -> Tensor:
        return paddle.abs(x)

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        if lanes.is_on_accelerator(x):  # it adds up in trees
            return paddle.sum(x, axis=axes, keepdim=axes is not None)
        # in float64, because a float32 sum along an axis is a running one: 4e-5 off for 4096 equal numbers
        wide = "complex128" if self.dtype(x) in COMPLEX else "float64"
        return self.cast(paddle.sum(x, axis=axes, dtype=wide, keepdim=axes is not None), self.dtype(x))

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return versions.largest(x, axes)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        dtype = self.dtype(x if self.is_tensor(x) else y)
        wide = WIDE.get(dtype, dtype)
        x, y = (self.cast(z, wide) if self.is_tensor(z) else filled(z, wide, condition) for z in (x, y))
        return self.cast(paddle.where(condition, x, y), dtype)

    def clip(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        dtype = self.dtype(x)
        wide = WIDE.get(dtype, "int64")
        made = self.cast(x, wide)
        if upper is not None:
            made = versions.minimum(made, self.asarray(upper, wide, x))
        if lower is not None:
            made = versions.maximum(made, self.asarray(lower, wide, x))
        return self.cast(made, dtype)

    def log(self, x: Tensor) -> Tensor:
        return paddle.log(x)

    def tolist(self, x: Tensor) -> Any:
        return self.cast(x, "float32").tolist() if self.dtype(x) == "bfloat16" else x.tolist()  # Paddle returns its bits

    def power(self, x: Tensor, exponent: float) -> Tensor:
        if exponent == 0.5:
            return paddle.sqrt(x)
        return paddle.pow(x, self.asarray(exponent, self.dtype(x), x))  # a Python number would be rounded to float32

    def constant(self, value: float, like: Tensor) -> Any:
        in_float32 = self.can_read(like) or self.dtype(like) != "float64"  # in a static program a number is a float32
        return value if in_float32 else self.asarray(value, "float64", like)

    def detach(self, x: Tensor) -> Tensor:
        return x.detach()

    def copy(self, x: Tensor) -> Tensor:
        return versions.merged(x) if self.is_sparse(x) else x.clone() if self.can_read(x) else x

    def assign_(self, x: Tensor, value: Tensor) -> None:
        if not self.is_sparse(x):
            x.copy_(value, True)
        elif x.rows():
            versions.take_rows(x, value)

    # ---- how a clip runs ----------------------------------------------------------------------------------------------------

    def lane(self, tensors: Sequence[Tensor]) -> Lane | None:
        if set(map(type, tensors)) == {versions.Value}:
            return program.traced(self, tensors)
        return lanes.eager(self, tensors)

    def arithmetic(self, in_place: bool) -> AbstractContextManager[Any]:
        return paddle.no_grad() if in_place else nullcontext()
