"""TensorFlow: eager and symbolic tensors, variables, IndexedSlices; tf.function, XLA, and TF 1's graphs and sessions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradclip.backends.host.lane import FUSED
from gradclip.backends.tensorflow import compiled, lanes, versions
from gradclip.backends.tensorflow.containers import TensorFlowContainers
from gradclip.backends.tensorflow.distributed import TensorFlowDistributed
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import WIDE
from gradclip.core.errors import GradclipError, NotWritableError, ShapeError, TensorTypeError
from gradclip.core.lane import Lane
from gradclip.core.mistakes import is_keras_variable, keras_variable

__all__ = ["TensorFlowBackend"]


class TensorFlowBackend(Backend):
    """Tensors are gradients and immutable. A ``tf.Variable`` is writable, unless it is trainable: then it is a weight."""

    name = "tensorflow"
    reference = lanes.TensorFlowReference
    fused = FUSED
    containers = TensorFlowContainers()
    distributed = TensorFlowDistributed()

    # ---- describe -----------------------------------------------------------------------------------------------------------

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, (versions.TENSORS, tf.IndexedSlices))

    def dtype(self, x: Tensor) -> str:
        return str(tf.as_dtype(x.dtype).base_dtype.name)

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        shape = tf.TensorShape(x.shape)
        if isinstance(x, tf.IndexedSlices) and shape.rank is None and x.values.shape.rank is not None:
            return (None, *x.values.shape.as_list()[1:])
        return None if shape.rank is None else tuple(shape.as_list())

    def size(self, x: Tensor) -> Any:
        shape = self.shape(x)
        if shape is not None and None not in shape:
            return math.prod(length for length in shape if length is not None)
        if not isinstance(x, tf.IndexedSlices):
            return tf.size(x, out_type=tf.int64)
        if x.dense_shape is None:
            hint = "make it with tf.IndexedSlices(values, indices, dense_shape)."
            raise self.error(ShapeError("The size of a sparse gradient is unknown.", "dense_shape=None", hint))
        return tf.reduce_prod(tf.cast(x.dense_shape, tf.int64))

    def check(self, tensors: Sequence[Tensor]) -> None:
        if all(issubclass(kind, (tf.Tensor, tf.IndexedSlices)) for kind in set(map(type, tensors))):
            return  # no variables
        for x in tensors:
            if _is_variable(x) and is_keras_variable(type(x)):
                raise keras_variable(x)
        weights = [x for x in tensors if _is_variable(x) and getattr(x, "trainable", False)]
        if 0 < len(weights) < len(tensors):
            hint = "pass the gradients alone: [g for g, v in pairs]."
            raise TensorTypeError("Beside gradients a trainable variable is a weight.", f"{weights[0].name!r} and others", hint)

    def check_writable(self, x: Tensor) -> None:
        if not _is_variable(x):
            hint = "use gradclip.clip, which returns new ones; a tf.Variable with trainable=False can be written."
            raise NotWritableError("This gradient cannot be written in place.", f"an immutable {type(x).__name__}", hint)
        if getattr(x, "trainable", False):
            hint = "pass tape.gradient(loss, variables). A variable that holds a gradient is made with trainable=False; "
            hint += "a weight is clipped by w.assign(gradclip.clip(w, rule).grads)."
            raise NotWritableError("A trainable variable is a weight, not a gradient.", f"a variable named {x.name!r}", hint)
        if not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function:
            what = "In a graph of TensorFlow 1 nothing would run the assignment."
            raise NotWritableError(what, f"a {type(x).__name__}", "use gradclip.clip, and assign what it returns.")

    def refused(self, x: object) -> TensorTypeError | None:
        for kind, hint in _NO_TENSORS.items():
            if isinstance(x, kind):
                name = _NAMES.get(kind, f"tf.{kind.__name__}")
                return TensorTypeError(f"A {name} is neither a dense tensor nor a gradient.", _described(x), hint)
        return None

    def reads_free(self, tensors: Sequence[Tensor]) -> bool:
        if not tf.executing_eagerly() or versions.is_recording():
            return False
        return all(self.can_read(x) and lanes.is_on_host(_values(x).device) for x in tensors)

    def can_read(self, x: Tensor) -> bool:
        return hasattr(_values(x), "numpy") and (tf.executing_eagerly() or not _is_variable(x))

    def is_sparse(self, x: Tensor) -> bool:
        return isinstance(x, tf.IndexedSlices)

    def rows(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        if not isinstance(x, tf.IndexedSlices):
            return super().rows(x)
        values, indices, (unique, places) = x.values, x.indices, tf.unique(x.indices)
        if not tf.executing_eagerly() or unique.shape != indices.shape:
            dtype, indices = self.dtype(x), unique
            wide = self.cast(values, WIDE.get(dtype, dtype))
            values = self.cast(tf.math.unsorted_segment_sum(wide, places, tf.size(unique)), dtype)
        return values, lambda new: tf.IndexedSlices(new, indices, x.dense_shape)

    def stored(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        return x.values, lambda new: tf.IndexedSlices(new, x.indices, x.dense_shape)

    # ---- calculate ----------------------------------------------------------------------------------------------------------

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        value = tf.convert_to_tensor(x)
        return value if value.dtype.name == dtype else tf.cast(value, dtype)

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        if isinstance(value, (int, float)):
            return _number(value, dtype)
        return tf.constant(value, dtype) if isinstance(value, (list, tuple)) else self.cast(value, dtype)

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        return tf.stack([self.cast(x, dtype) for x in tensors])

    def abs(self, x: Tensor) -> Tensor:
        return tf.abs(x)

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        keep = axes is not None
        if x.dtype != tf.float32 or lanes.is_accelerator(x.device):  # an accelerator adds up in trees
            return tf.reduce_sum(x, axes, keepdims=keep)
        # TensorFlow's float32 sums drift: 11 ulp for 5,000 equal numbers, 0.3 % for 16 million over a leading axis
        return tf.cast(tf.reduce_sum(tf.cast(x, tf.float64), axes, keepdims=keep), tf.float32)

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        largest = tf.reduce_max(x, axes, keepdims=axes is not None)
        if tf.executing_eagerly():
            return largest
        # XLA for the CPU computes 1 as the maximum of (1, nan)
        has_nan = tf.reduce_any(tf.math.is_nan(x), axes, keepdims=axes is not None)
        return self.where(has_nan, math.nan, largest)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        dtype = self.dtype(y if isinstance(x, (int, float)) else x)
        x, y = _operand(x, dtype), _operand(y, dtype)
        if condition.shape.rank == x.shape.rank == y.shape.rank == 0:
            return tf.raw_ops.Select(condition=condition, x=x, y=y)  # tf.where broadcasts, and takes twice as long
        return tf.where(condition, x, y)

    def clip(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        dtype = self.dtype(x)
        x = self.cast(x, dtype)
        bounded = x if upper is None else tf.minimum(x, upper := _operand(upper, dtype))
        bounded = bounded if lower is None else tf.maximum(bounded, lower := _operand(lower, dtype))
        if lower is None or upper is None:
            return bounded
        # TensorFlow's threads flush subnormal floats in arithmetic, but not in a select
        return tf.where((x >= lower) & (x <= upper), x, bounded)

    def power(self, x: Tensor, exponent: float) -> Tensor:
        return tf.sqrt(x) if exponent == 0.5 else x**exponent

    def log(self, x: Tensor) -> Tensor:
        return tf.math.log(x)

    def tolist(self, x: Tensor) -> Any:
        return x.numpy().tolist()

    def detach(self, x: Tensor) -> Tensor:
        return tf.stop_gradient(x)

    def copy(self, x: Tensor) -> Tensor:
        return tf.identity(x) if _is_variable(x) else x

    def assign_(self, x: Tensor, value: Tensor) -> None:
        x.assign(value)

    # ---- how a clip runs ----------------------------------------------------------------------------------------------------

    def lane(self, tensors: Sequence[Tensor]) -> Lane | None:
        return lanes.eager(self, tensors) if tf.executing_eagerly() else compiled.traced(self, tensors)

    def error(self, error: GradclipError) -> Exception:
        """An error that is also an ``InvalidArgumentError``: TensorFlow raises it for dtypes and axes that do not fit."""
        kind: Any = type(error)
        return _error_type(kind)(str(error))


#: objects of TensorFlow that hold or describe tensors -> what to pass instead
_NO_TENSORS: dict[type, str] = {
    tf.RaggedTensor: "pass x.flat_values, which has all elements; x.with_flat_values(clipped) has the rows again.",
    tf.SparseTensor: "pass x.values; x.with_values(clipped) has the indices again. Or pass tf.sparse.to_dense(x). "
    "A gradient of some rows is a tf.IndexedSlices, which can be passed.",
    tf.TensorArray: "pass x.stack(), or x.concat() for elements of several lengths.",
    tf.compat.v1.SparseTensorValue: "pass x.values; a gradient of some rows is a tf.IndexedSlices, which can be passed.",
    tf.compat.v1.ragged.RaggedTensorValue: "pass x.flat_values, which has all elements.",
    tf.data.Dataset: "it has batches of data: pass gradients, tape.gradient(loss, variables).",
    tf.data.Iterator: "it has batches of data: pass gradients, tape.gradient(loss, variables).",
    tf.TypeSpec: "it describes tensors and has no values: pass gradients, tape.gradient(loss, variables).",
}


_NAMES = {  #: those that are not right in tf
    tf.compat.v1.SparseTensorValue: "tf.compat.v1.SparseTensorValue",
    tf.compat.v1.ragged.RaggedTensorValue: "tf.compat.v1.ragged.RaggedTensorValue",
    tf.data.Dataset: "tf.data.Dataset",
    tf.data.Iterator: "tf.data.Iterator",
}


def _described(x: Any) -> str:
    dtype, shape = getattr(x, "dtype", None), getattr(x, "shape", None)
    known = ([] if dtype is None else [f"dtype={dtype.name}"]) + ([] if shape is None else [f"shape={shape}"])
    return f"a {type(x).__name__}: {', '.join(known)}" if known else f"a {type(x).__name__}"


def _is_variable(x: object) -> bool:
    """Whether a tensor can be assigned to: TensorFlow's own variables and those of Keras."""
    return not isinstance(x, (tf.Tensor, tf.IndexedSlices)) and hasattr(x, "assign")


def _values(x: Tensor) -> Tensor:
    return x.values if isinstance(x, tf.IndexedSlices) else x


def _operand(x: Any, dtype: str) -> Tensor:
    """A number or a tensor in this dtype: TensorFlow does not promote, and treats a number as a float32."""
    return _number(x, dtype) if isinstance(x, (int, float)) else tf.cast(x, dtype)


def _number(value: float, dtype: str) -> Tensor:
    kind = tf.as_dtype(dtype)
    with np.errstate(over="ignore"):  # a number beyond the dtype is infinite
        return tf.constant(int(value) if kind.is_integer else value, kind)


@functools.cache
def _error_type(kind: type[GradclipError]) -> type[GradclipError]:
    def initialise(self: Any, text: str) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, text)
        self.args = (text,)

    body = {"__init__": initialise, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind, tf.errors.InvalidArgumentError), body)
