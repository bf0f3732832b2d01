"""TensorFlow's private names, each with what is done where a version lacks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from gradclip.floors import check_version

__all__ = ["TENSORS", "as_tensor", "by_device", "is_recording", "is_traced_by_xla"]

check_version("tensorflow", tf.__version__)

try:
    from tensorflow.python.eager.record import could_possibly_record as _could_record
except ImportError:  # there is no public way to ask; taking it for recorded costs speed and nothing else

    def _could_record() -> bool:
        return True


try:
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext as _is_in_xla
except ImportError:  # there is no public way to ask; without an answer XLA compiles conditionals, which are slower

    def _is_in_xla(graph: Any) -> bool:
        return False


_private = getattr(tf, "__internal__", None)

#: the types of dense tensors: without the private one, which Keras's variables have too, those of Keras are none
TENSORS: Any = getattr(getattr(_private, "types", None), "Tensor", (tf.Tensor, tf.Variable))

#: ``f(array, device, dtype)``, which shares the memory of an aligned array; ``tf.constant`` copies it
_EAGER: Any = getattr(_private, "EagerTensor", None)

_by_device: Any = getattr(_private, "execute_fn_for_device", None)


def is_recording() -> bool:
    """Whether a gradient tape or a forward accumulator may be looking."""
    return bool(_could_record())


def is_traced_by_xla() -> bool:
    """Whether XLA is to compile what is being traced, as far as is known at this time."""
    return bool(_is_in_xla(tf.compat.v1.get_default_graph()))


def as_tensor(array: Any, device: str) -> Any:
    """An eager tensor of an array that nothing writes any more, without a copy where that can be."""
    return tf.constant(array) if _EAGER is None else _EAGER(array, device, None)


def by_device(executor: Callable[[], Any], xla: Callable[[], Any]) -> Any:
    """One function where TensorFlow's executor runs the graph, the other where XLA compiles it, whoever decides that later."""
    if _by_device is None:
        return xla()  # which the executor can run too
    device = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return _by_device({device: executor}, xla)
