"""TensorFlow's tensors, and ``tf.clip_by_norm``, ``tf.clip_by_global_norm`` and ``tf.clip_by_value``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from gradclip.backends.targets.host import Read, from_numpy, to_numpy
from gradclip.conformance.adapted import features_of, natives_of
from gradclip.conformance.target import ComposedTarget, Run
from gradclip.natives import Applied

__all__ = ["TensorFlowArrays", "arrays", "native"]

Function = Callable[[list[Any]], list[Any]]


class TensorFlowArrays:
    """Immutable tensors, and IndexedSlices."""

    name = f"tensorflow {tf.__version__}"
    versions: ClassVar[dict[str, str]] = {"tensorflow": tf.__version__}
    device = "cpu"
    lacks = ("subnormal",)  # TensorFlow's arithmetic turns them into zeros

    def make(self, values: Sequence[Any], shape: Sequence[int], dtype: str) -> tf.Tensor:
        return tf.constant(to_numpy(values, shape, dtype))

    def read(self, array: Any) -> Read:
        if not isinstance(array, tf.IndexedSlices):
            return from_numpy(array.numpy() if hasattr(array, "numpy") else array)
        name = tf.as_dtype(array.dtype).name
        wide = tf.cast(array.values, tf.complex128 if array.dtype.is_complex else tf.float64)
        shape = tuple(array.dense_shape.numpy().tolist())
        dense = tf.math.unsorted_segment_sum(wide, array.indices, shape[0])
        return dense.numpy().reshape(-1).tolist(), shape, name

    def make_sparse(self, rows: Sequence[int], values: Sequence[Any], shape: Sequence[int], dtype: str) -> tf.IndexedSlices:
        inner = self.make(values, [len(rows), *shape[1:]], dtype)
        return tf.IndexedSlices(inner, tf.constant(list(rows), tf.int64), tf.constant(list(shape), tf.int64))

    def trace(self, function: Function) -> Function:
        traced: Function = tf.function(function)
        return traced

    def derivative(self, function: Function, arrays: Sequence[Any]) -> list[Any]:
        inputs = list(arrays)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = [tf.reduce_sum(output) for output in function(inputs) if output is not None]
        return list(tape.gradient(outputs, inputs, unconnected_gradients=tf.UnconnectedGradients.ZERO))


arrays = TensorFlowArrays()


def native() -> ComposedTarget:
    """TensorFlow's own functions; functions of one tensor are called for each."""
    features = features_of(arrays) - {"iterator", "int32", "int64", "bool", "complex64", "complex128"}
    natives, claims = natives_of("tensorflow", features)
    runs = {}
    for operation, one in natives.items():
        takes_one, function = one.applied is Applied.TENSOR, getattr(tf, one.last)
        claims[operation] -= {"none"} if takes_one else {"mixed"}
        claims[operation] |= {"int32", "int64"} if one.rule().is_by_value else set()
        runs[operation] = _each(function) if takes_one else _together(function)
    return ComposedTarget(arrays.name, arrays, claims, runs)


def _each(function: Any) -> Run:
    return lambda gradients, arguments: ([function(gradient, **arguments) for gradient in gradients], None)


def _together(function: Any) -> Run:
    return lambda gradients, arguments: function(gradients, **arguments)
