"""How XLA takes a norm and bounds elements: simple operations, which it fuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from gradclip.backends.tensorflow.lanes import TINY, is_few
from gradclip.core.backend import Tensor

__all__ = ["by_bits", "divided", "plain"]

_LANES = (16, 64)  # for XLA, which adds up one by one: parallel sums, and the elements of each


def divided(x: Tensor, row: int) -> tuple[Tensor, Tensor | None]:
    """Rows of ``row`` elements, and the rest or None."""
    count = x.shape.num_elements()
    if count is not None and count % row == 0:
        return tf.reshape(x, [-1, row]), None
    flat = tf.reshape(x, [-1])
    length = tf.size(flat) if count is None else count
    whole = length - length % row
    return tf.reshape(flat[:whole], [-1, row]), flat[whole:]


def plain(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of all in float64, by operations that XLA fuses without a float64 copy."""
    squares = []
    for x in tensors:
        rest: Tensor | None = x
        if not is_few(x, TINY) and x.shape.num_elements() is not None:  # XLA cannot slice at an unknown index
            rows, rest = divided(x, _LANES[0] * _LANES[1])
            sums = tf.reduce_sum(tf.square(tf.cast(tf.reshape(rows, [-1, *_LANES]), tf.float64)), 1)
            squares.append(tf.reduce_sum(tf.abs(sums)))  # else XLA would merge both into one sequential sum
        if rest is not None:
            squares.append(tf.reduce_sum(tf.square(tf.cast(rest, tf.float64))))
    return tf.sqrt(tf.add_n(squares))


def by_bits(x: Tensor, lower: float, upper: float) -> Tensor:
    """Between constants of both signs. Numbers of one sign have the order of their bits; NaN comes after infinity.

    XLA for the CPU converts bfloat16 to float32 to compare it, and flushes subnormal numbers, but not bits.
    """
    kind = {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]
    with np.errstate(over="ignore"):
        low, high = (np.array(bound).astype(x.dtype.as_numpy_dtype) for bound in (lower, upper))
    infinity, least, most = (np.array(c, low.dtype).view(kind.as_numpy_dtype) for c in (np.inf, low, high))

    @tf.custom_gradient
    def bounded(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        bits = tf.bitcast(x, kind)
        nearest = tf.minimum(bits, tf.where(bits < 0, least, most))
        is_nan = tf.bitwise.bitwise_and(bits, tf.constant(kind.max, kind)) > infinity

        def slope(given: Tensor) -> Tensor:
            return tf.where((x >= low) & (x <= high), given, tf.zeros_like(given))

        return tf.bitcast(tf.where(is_nan, bits, nearest), x.dtype), slope

    result: Tensor = bounded(x)
    return result
