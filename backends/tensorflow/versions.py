"""TensorFlow's private names, each with a fallback for versions without it."""

from __future__ import annotations

from types import FrameType
from typing import Any

import tensorflow as tf

from gradclip.core.versions import check_version

__all__ = ["TENSORS", "as_tensor", "is_recording", "is_traced_by_xla", "source"]

check_version("tensorflow", tf.__version__)

try:
    from tensorflow.python.eager.record import could_possibly_record as _could_record
except ImportError:  # there is no public name; to assume a recording costs only speed

    def _could_record() -> bool:
        return True


try:
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext as _is_in_xla
except ImportError:  # there is no public name; without it XLA compiles conditionals, which are slower

    def _is_in_xla(graph: Any) -> bool:
        return False


_private = getattr(tf, "__internal__", None)

#: the types of dense tensors: without the private type, Keras's variables do not count
TENSORS: Any = getattr(getattr(_private, "types", None), "Tensor", (tf.Tensor, tf.Variable))

#: ``f(array, device, dtype)``, which shares the memory of an aligned array; ``tf.constant`` copies it
_EAGER: Any = getattr(_private, "EagerTensor", None)


def is_recording() -> bool:
    """Whether a gradient tape or a forward accumulator may be recording."""
    return bool(_could_record())


def is_traced_by_xla() -> bool:
    """Whether XLA will compile the function being traced, as far as is known now."""
    return bool(_is_in_xla(tf.compat.v1.get_default_graph()))


def as_tensor(array: Any, device: str) -> Any:
    """An eager tensor of an array that nothing writes any more, without a copy if possible."""
    return tf.constant(array) if _EAGER is None else _EAGER(array, device, None)


def source(frame: FrameType) -> tuple[str, int] | None:
    """The line of the source from which AutoGraph wrote the line that a frame runs; None without its map of the lines."""
    around: FrameType | None = frame
    while around is not None and "converted_f" not in around.f_locals:  # the body of an `if` is a function of its own
        around = around.f_back
    origins = getattr(around.f_locals["converted_f"], "ag_source_map", {}) if around is not None else {}
    found = [x.loc for line, x in origins.items() if line.lineno == frame.f_lineno]
    return (found[0].filename, found[0].lineno) if found else None
