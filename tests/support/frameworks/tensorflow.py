from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from frameworks.base import LARGE, Framework

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf


class TensorFlowFramework(Framework):
    name = "tensorflow"
    thresholds = (
        ("gradclip.backends.tensorflow.lanes._PIECE", LARGE),
        ("gradclip.backends.tensorflow.compiled.TINY", LARGE // 32),
        ("gradclip.backends.tensorflow.xla.TINY", LARGE // 32),
        ("gradclip.backends.tensorflow.compiled._FEW", LARGE // 8),
        ("gradclip.backends.tensorflow.compiled._COUNT", 2),
        ("gradclip.backends.tensorflow.compiled._SOME", LARGE // 4),
    )
    packages = ("tensorflow_cpu",)
    dtypes = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    flushes_subnormals = True
    has_sparse = True
    jits = ("function", "xla", "unknown_shape")

    def make(self, values: Any, dtype: str = "float32") -> Any:
        kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)  # bfloat16, and the kinds of float8
        return tf.constant(np.array(values).astype(kind))

    def exp(self, tensor: Any) -> Any:
        return tf.exp(tensor)

    def sum(self, tensor: Any) -> Any:
        return tf.reduce_sum(tensor)

    def read(self, tensor: Any) -> np.ndarray:
        array = np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor)
        return np.array(array, np.complex128 if array.dtype.kind == "c" else np.float64 if array.dtype.kind in "fV" else None)

    def dtype(self, tensor: Any) -> str:
        return str(tf.as_dtype(tensor.dtype).name)

    def sparse(self, rows: list[int], values: Any, height: int) -> Any:
        values = values if tf.is_tensor(values) else self.make(values)
        return tf.IndexedSlices(values, tf.constant(rows, tf.int64), tf.constant([height, *values.shape[1:]], tf.int64))

    def densify(self, sparse: Any) -> np.ndarray:
        values = self.read(sparse.values)
        dense = np.zeros(tuple(sparse.dense_shape.numpy()), values.dtype)
        np.add.at(dense, sparse.indices.numpy(), values)
        return dense

    def is_sparse(self, tensor: Any) -> bool:
        return isinstance(tensor, tf.IndexedSlices)

    def jit(self, how: str, function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
        if how != "unknown_shape":
            return tf.function(function, jit_compile=how == "xla")  # type: ignore[no-any-return]

        traced: dict[tuple[Any, ...], Any] = {}  # a function of one signature is traced once

        def run(tensors: list[Any]) -> list[Any]:
            signature = tuple(map(_of_unknown_lengths, tensors))
            if signature not in traced:
                traced[signature] = tf.function(function, input_signature=[list(signature)])
            return traced[signature](tensors)  # type: ignore[no-any-return]

        return run

    def derivative(self, function: Callable[[list[Any]], Any], tensors: list[Any]) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = function(tensors)
        gradients = tape.gradient(value, tensors, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [self.read(gradient) for gradient in gradients]


def _of_unknown_lengths(x: Any) -> Any:
    if isinstance(x, tf.IndexedSlices):
        shape = [None] * x.values.shape.rank
        return tf.IndexedSlicesSpec(shape, x.dtype, x.indices.dtype, None if x.dense_shape is None else x.dense_shape.dtype)
    return None if x is None else tf.TensorSpec([None] * x.shape.rank, x.dtype)


framework = TensorFlowFramework()
