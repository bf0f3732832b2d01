"""TensorFlow: tf.clip_by_*, eager, in a tf.function and by XLA; and the clips of Keras's optimizers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import ml_dtypes
import numpy as np
import tensorflow as tf

from benchmarks.case import EAGER, Function
from benchmarks.subjects import keras
from benchmarks.subjects.base import Call, NoDeviceError, Sample, Subject
from benchmarks.subjects.natives import functions
from gradclip.backends.host.threads import cores
from gradclip.natives import tensorflow as natives

MODES = (EAGER, "function", "xla")


class TensorFlowSubject(Subject):
    name = "tensorflow"
    mutable = False
    modes = MODES

    def __init__(self, device: str) -> None:
        if device == "cuda" and not tf.config.list_physical_devices("GPU"):
            raise NoDeviceError("tensorflow sees no GPU")
        self.device = device
        self.place = "/GPU:0" if device == "cuda" else "/CPU:0"
        self.threads = tf.config.threading.get_intra_op_parallelism_threads() or cores()

    def versions(self) -> dict[str, str]:
        return {"tensorflow": tf.__version__, **keras.versions()}

    def functions(self) -> Sequence[Function]:
        return (*functions(natives.NATIVES, MODES), *keras.functions((EAGER, "function")))

    def native_norm(self, order: float) -> tuple[str, Callable[[Any], Any]] | None:
        return ("tensors", tf.linalg.global_norm) if order == 2 else None

    def make(self, array: np.ndarray, dtype: str) -> Any:
        with tf.device(self.place):
            return tf.constant(array.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))

    def copy(self, x: Any) -> Any:
        return x  # immutable

    def restore(self, sample: Sample) -> None:
        sample.tensors[:] = sample.pristine  # they are immutable

    def read(self, x: Any) -> np.ndarray:
        return np.asarray(x.numpy(), np.float64)

    def dtype(self, x: Any) -> str:
        return str(x.dtype.name)

    def call(self, function: Callable[[Any], Any], mode: str, form: str, sample: Sample) -> Call:
        given = sample.form(form)
        run = function if mode == EAGER else tf.function(function, jit_compile=mode == "xla")
        if self.device == "cpu":
            return lambda: run(given)  # on the host TensorFlow returns when the result is there

        def wait() -> Any:
            with tf.device(self.place):
                result = run(given)
            tf.test.experimental.sync_devices()
            return result

        return wait

    def allocated(self, call: Call) -> int:
        # TensorFlow keeps the memory that it got from the system, so the process does not show what a call takes
        name = self.place.strip("/")
        tf.config.experimental.reset_memory_stats(name)
        before = tf.config.experimental.get_memory_info(name)["current"]
        call()
        return int(tf.config.experimental.get_memory_info(name)["peak"] - before)


subject = TensorFlowSubject
