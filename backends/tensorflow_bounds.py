"""TensorFlow's elements between bounds: NaN stays, and so does what is subnormal where nothing is clipped. No backend itself.

TensorFlow's threads make 0 of a subnormal float that they compute with, its minimum and maximum too, but not of one that they
select. Halves are compared one by one, and keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from gradclip.backend import Tensor
from gradclip.backends import tensorflow_fused as fused

__all__ = ["between", "clamped", "selected"]

_FEW = 1 << 14  # up to so many elements to compare and select costs less than a branch
_FIRST = 1 << 12  # so many elements are looked at first
_LARGE = 1 << 25  # elements beyond which one operation that does both is slower than two, which are vectorised


def between(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The operation that clips by value, in one pass; it does not keep what is subnormal."""
    return tf.raw_ops.ClipByValue(t=x, clip_value_min=lower, clip_value_max=upper)


def selected(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Each element between two bounds, numbers or tensors that broadcast; a NaN stays one, and one bound makes one.

    What fits is not computed with; a NaN does not fit.
    """
    return tf.where((x >= lower) & (x <= upper), x, _both(x, lower, upper))


def _both(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return tf.maximum(tf.minimum(x, upper), lower)


def clamped(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """While tracing, each element between two bounds, constants; where nothing is clipped ``x`` itself to the bit.

    Whether that is so is found by reading, the first elements first.
    """
    if fused.is_traced_by_xla():
        return _clamped_by_xla(x, lower, upper)
    if fused.is_recording():  # the one operation has a slope where there is a NaN
        return selected(x, lower, upper)
    if x.dtype in (tf.bfloat16, tf.float16):
        return between(x, lower, upper)
    if fused.is_few(x, _FEW):
        result = between(x, lower, upper)
        return tf.raw_ops.Select(condition=result == x, x=x, y=result)  # tf.where, which broadcasts, takes twice as long

    def fits(part: Tensor) -> Tensor:
        return (tf.reduce_max(part) <= upper) & (tf.reduce_min(part) >= lower)

    def all_clamped() -> Tensor:
        return between(x, lower, upper) if fused.is_few(x, _LARGE) else _both(x, lower, upper)

    first = fits(tf.reshape(x, [-1])[:_FIRST])
    return tf.cond(first, lambda: tf.cond(fits(x), lambda: x, all_clamped), all_clamped)


def _clamped_by_xla(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Each element between two constants.

    XLA's compiler for the CPU makes float32 of bfloat16 to compare it, but not of its bits. Next to a bound of infinity it sees
    through :func:`selected`, and computes with what fits. To forward differentiation bits are constants.
    """
    low, high = tf.get_static_value(lower), tf.get_static_value(upper)
    is_open = not np.isfinite(low) or not np.isfinite(high)
    if (x.dtype == tf.bfloat16 or is_open) and low < 0 < high and not (fused.is_recording() or fused.is_vectorized()):
        return _clamped_by_bits(x, low, high)
    return selected(x, lower, upper)


def _clamped_by_bits(x: Tensor, lower: Any, upper: Any) -> Tensor:
    """Between constants of both signs. Numbers of one sign are in the order of their bits; a NaN's come after infinity's."""
    kind = {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]
    infinity, low, high = (tf.constant(np.array(c, lower.dtype).view(kind.as_numpy_dtype)) for c in (np.inf, lower, upper))

    @tf.custom_gradient
    def bounded(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        bits = tf.bitcast(x, kind)
        nearest = tf.minimum(bits, tf.where(bits < 0, low, high))
        is_nan = tf.bitwise.bitwise_and(bits, tf.constant(kind.max, kind)) > infinity

        def slope(given: Tensor) -> Tensor:
            return tf.where((x >= lower) & (x <= upper), given, tf.zeros_like(given))

        return tf.bitcast(tf.where(is_nan, bits, nearest), x.dtype), slope

    result: Tensor = bounded(x)
    return result
