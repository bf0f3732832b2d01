"""Norms and products from TensorFlow's fused operations: as fast as memory, and right at any length. No backend itself.

``EuclideanNorm`` squares, adds up and takes the root in one pass. Over a whole tensor its float32 sum drifts, by 7 ulp in equal
numbers; over short rows it does not, and their norms are few enough for float64. XLA lacks the operation, and fuses plain ones.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradclip.backend import Tensor
from gradclip.backends import host
from gradclip.dtypes import WIDE

try:
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext as _is_in_xla
except ImportError:  # there is no public way to ask; without an answer XLA compiles a conditional, which is slower

    def _is_in_xla(graph: Any) -> bool:
        return False


NARROW = (tf.float32, tf.bfloat16, tf.float16)  #: dtypes whose squares neither overflow nor vanish in float64
_ROW = 512  # elements to a float32 sum in a few lanes: 3 ulp at the worst, where 4096 are off by 7
_LANES = (16, 64)  # for XLA, which adds up one after the other: so many sums side by side of so many elements each
_FEW = 1 << 14  # up to so many elements a copy in float64 costs less than an operation
_TINY = 1 << 12  # up to so many elements a copy costs less than an operation
_BLOCK = 1 << 21  # elements that are cast at once: those stay in the cache
_LEAST, _MOST = 2.0**-30, 2.0**60  # between them no float32 square has overflowed, or vanished that matters


def is_traced_by_xla() -> bool:
    """Whether XLA is to compile what is being traced, as far as is known at this time."""
    return bool(_is_in_xla(tf.compat.v1.get_default_graph()))


def array(x: Tensor) -> np.ndarray[Any, Any]:
    """The memory of an eager tensor on the host: no copy of it, as ``x.numpy()`` is."""
    try:
        return np.asarray(x)
    except ValueError:  # 0-d of a dtype that NumPy lacks
        return np.asarray(x.numpy())


def threads() -> int:
    """As many as TensorFlow's own operations take."""
    count = tf.config.threading.get_intra_op_parallelism_threads() or os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    return int(count) if str(count).isdigit() and int(count) > 0 else host.cores()


def norms(groups: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The norm over each group of tensors of :data:`NARROW` dtypes, as 0-d tensors of float64, differentiable.

    Nothing looks at a value, and no square overflows or vanishes.
    """
    lengths = [len(group) for group in groups]

    def grouped(items: Sequence[Tensor]) -> list[list[Tensor]]:
        rest = iter(items)
        return [list(itertools.islice(rest, length)) for length in lengths]

    @tf.custom_gradient
    def measured(*tensors: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
        def slopes(given: Tensor) -> list[Tensor]:
            each = zip(grouped(tensors), norms(grouped(tensors)), _unstacked(given, len(groups)), strict=True)
            return [_direction(x, n) * tf.cast(slope, x.dtype) for group, n, slope in each for x in group]

        return _measured(grouped(tensors)), slopes

    return _unstacked(measured(*itertools.chain.from_iterable(groups)), len(groups))


def _direction(x: Tensor, n: Tensor) -> Tensor:
    """``x / n``, 0 where that is 0 / 0."""
    n = tf.cast(n, tf.float32)
    return tf.cast(tf.cast(x, tf.float32) / tf.where(n > 0, n, tf.ones_like(n)), x.dtype)


def _stacked(found: list[Tensor]) -> Tensor:
    return found[0] if len(found) == 1 else tf.stack(found)


def _unstacked(found: Tensor, count: int) -> list[Tensor]:
    return [found] if count == 1 else list(tf.unstack(found, count))


def _measured(groups: list[list[Tensor]]) -> Tensor:
    flats = [_flats(group) for group in groups]
    if tf.executing_eagerly():  # where both ways would be gone, so that the one that is always right is the faster
        return _stacked([_fused(flat, True) for flat in flats])
    if _is_vectorized() or is_traced_by_xla():
        return _stacked(list(map(_plain, flats)))
    if all(map(_is_short, flats)):
        return _short(flats)
    # XLA takes the other way, even of a function that was traced before anyone knew that XLA would compile it
    device = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return tf.__internal__.execute_fn_for_device({device: lambda: _checked(flats)}, lambda: _stacked(list(map(_plain, flats))))


def _is_vectorized() -> bool:
    """Whether ``tf.vectorized_map`` traces this, which takes the fused operation for one example after the other."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if "loop_body" in graph.get_name_scope():
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def _checked(groups: list[list[Tensor]]) -> Tensor:
    """The norms by way of float32, and those by way of float64 if one of them has overflowed or vanished."""
    found = _stacked([_fused(flats, False) for flats in groups])
    is_right = (found > _LEAST) & (found < _MOST)
    if len(groups) > 1:
        is_right = tf.reduce_all(is_right)
    return tf.cond(is_right, lambda: found, lambda: _stacked([_fused(flats, True) for flats in groups]))


def _flats(group: Sequence[Tensor]) -> list[Tensor]:
    """The elements of each, in one dimension; those of tiny tensors of one dtype together."""
    flats = [x if x.shape.rank == 1 else tf.reshape(x, [-1]) for x in group]
    tiny: dict[Any, list[Tensor]] = {}
    for x in flats:
        if _is_few(x, _TINY):
            tiny.setdefault(x.dtype, []).append(x)
    joined = [same[0] if len(same) == 1 else tf.concat(same, 0) for same in tiny.values()]
    return [x for x in flats if not _is_few(x, _TINY)] + joined


def _is_few(flat: Tensor, most: int | None = None) -> bool:
    """Whether it is known that there are no more elements than :data:`_FEW`, or than ``most``."""
    return flat.shape[0] is not None and flat.shape[0] <= (_FEW if most is None else most)


def _is_short(flats: Sequence[Tensor]) -> bool:
    """Whether a copy of all in float64, where no square overflows or vanishes, costs less than more operations."""
    return all(map(_is_few, flats)) and sum(flat.shape[0] for flat in flats) <= _FEW


def _short(groups: Sequence[Sequence[Tensor]]) -> Tensor:
    """The norms of short groups, by operations that XLA has too."""
    halves = [[tf.nn.l2_loss(tf.cast(flat, tf.float64)) for flat in flats] for flats in groups]
    return tf.sqrt(2 * _stacked([each[0] if len(each) == 1 else tf.add_n(each) for each in halves]))


def _divided(flat: Tensor, row: int) -> tuple[Tensor, Tensor | None]:
    """Rows of so many elements, and the rest, None where there is none."""
    length = tf.size(flat, tf.int64) if flat.shape[0] is None else flat.shape[0]
    whole = length - length % row
    if isinstance(length, int) and whole == length:
        return tf.reshape(flat, [-1, row]), None
    return tf.reshape(flat[:whole], [-1, row]), flat[whole:]


def _fused(flats: Sequence[Tensor], wide: bool) -> Tensor:
    """The norm of all by the fused operation, in float64 from the start if ``wide``."""
    parts: dict[Any, list[Tensor]] = {}
    is_short = _is_short(flats)
    for flat in flats:
        for part in [flat] if is_short or _is_few(flat, _TINY) else _wide_norms(flat) if wide else _row_norms(flat):
            parts.setdefault(part.dtype, []).append(part)
    joined = [tf.cast(same[0] if len(same) == 1 else tf.concat(same, 0), tf.float64) for same in parts.values()]
    return _euclidean(joined[0] if len(joined) == 1 else tf.concat(joined, 0), 0)


def _wide_norms(flat: Tensor) -> Iterator[Tensor]:
    """Vectors of float64, block by block as far as tracing knows the length."""
    for block in _blocks(flat):
        yield tf.reshape(_euclidean(tf.cast(block, tf.float64), 0), [1])


def _euclidean(x: Tensor, axis: int) -> Tensor:
    return tf.raw_ops.EuclideanNorm(input=x, axis=[axis])


def _row_norms(flat: Tensor) -> Iterator[Tensor]:
    """Vectors of float32: the norms of short rows."""
    if flat.dtype != tf.float32:
        for block in _blocks(flat):
            yield from _row_norms(tf.cast(block, tf.float32))
        return
    rows, rest = _divided(flat, _ROW)
    yield _euclidean(rows, 1)
    if rest is not None:
        yield tf.reshape(_euclidean(rest, 0), [1])


def _blocks(flat: Tensor) -> list[Tensor]:
    """The elements in pieces that fit into a cache, as far as tracing knows how many there are; without a copy."""
    if flat.shape[0] is None or flat.shape[0] < 2 * _BLOCK:
        return [flat]
    rows, rest = _divided(flat, _BLOCK)
    return [*tf.unstack(rows), *([] if rest is None else [rest])]


def _plain(flats: Sequence[Tensor]) -> Tensor:
    """The norm of all by operations that XLA fuses, in float64, of which no copy is made then."""
    squares = []
    for flat in flats:
        rest: Tensor | None = flat
        if not _is_few(flat, _TINY) and flat.shape[0] is not None:  # XLA cannot slice at a place that it does not know
            rows, rest = _divided(flat, _LANES[0] * _LANES[1])
            sums = tf.reduce_sum(tf.square(tf.cast(tf.reshape(rows, [-1, *_LANES]), tf.float64)), 1)
            squares.append(tf.reduce_sum(tf.abs(sums)))  # or XLA would make one sum of both, one after the other
        if rest is not None:
            squares.append(tf.reduce_sum(tf.square(tf.cast(rest, tf.float64))))
    return tf.sqrt(tf.add_n(squares))


def times(x: Tensor, factor: Tensor) -> Tensor:
    """``x * factor``, rounded once; the factor broadcasts, and is of float32, or of the dtype of ``x`` if that is wider."""
    if x.dtype == factor.dtype:
        return tf.raw_ops.Mul(x=x, y=factor)
    if factor.shape.rank or x.shape.num_elements() is None or x.shape.num_elements() < 2 * _BLOCK:
        return _cast_times(x, factor)
    parts = [_cast_times(part, factor) for part in _blocks(tf.reshape(x, [-1]))]
    return tf.reshape(tf.concat(parts, 0), x.shape)


def _cast_times(x: Tensor, factor: Tensor) -> Tensor:
    wide = tf.raw_ops.Cast(x=x, DstT=factor.dtype)
    return tf.raw_ops.Cast(x=tf.raw_ops.Mul(x=wide, y=factor), DstT=x.dtype)


def products(tensors: Sequence[Tensor], factors: Sequence[float], dtype: str) -> list[Tensor]:
    """:func:`times` of eager tensors on the host, each with its own factor: of small ones of one shape at once."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for i, x in enumerate(tensors):
        alike.setdefault(array(x).shape, []).append(i)
    results: list[Tensor] = [None] * len(tensors)
    for shape, places in alike.items():
        if len(places) > 2 and math.prod(shape) <= _TINY:
            column = np.reshape([factors[i] for i in places], (-1, *(1 for _ in shape)))
            stacked = times(tf.raw_ops.Pack(values=[tensors[i] for i in places]), tf.constant(column, dtype))
            scaled = tf.raw_ops.Unpack(value=stacked, num=len(places))
        else:
            scaled = [times(tensors[i], tf.constant(factors[i], dtype)) for i in places]
        for i, product in zip(places, scaled, strict=True):
            results[i] = product
    return results


def clipped(tensors: Sequence[Tensor], factor: Tensor) -> list[Tensor]:
    """While tracing, each times a 0-d factor that nobody may look at; itself to the bit, and no copy of it, where that is 1.

    Tiny ones are copied: that costs less than a branch.
    """
    fits = factor >= 1
    is_tiny = [(x.shape.num_elements() or _TINY + 1) <= _TINY for x in tensors]
    large = [x for x, is_small in zip(tensors, is_tiny, strict=True) if not is_small]

    def scaled(x: Tensor) -> Tensor:
        return times(x, tf.cast(factor, WIDE[x.dtype.name]))

    rest = iter(tf.nest.flatten(tf.cond(fits, lambda: large, lambda: list(map(scaled, large)))) if large else [])
    # tf.where, which broadcasts, takes twice as long
    return [
        tf.raw_ops.Select(condition=fits, x=x, y=scaled(x)) if is_small else next(rest)
        for x, is_small in zip(tensors, is_tiny, strict=True)
    ]


def clamped(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """While tracing, each element between two 0-d bounds; where nothing is clipped ``x`` itself to the bit.

    Arithmetic would flush subnormal numbers to zero, but not those of halves, which TensorFlow compares one by one. What fits
    is found by reading, the first elements first.
    """
    if x.dtype in (tf.bfloat16, tf.float16):
        return _between(x, lower, upper)
    if (x.shape.num_elements() or _FEW + 1) <= _FEW:
        result = _between(x, lower, upper)
        return tf.raw_ops.Select(condition=result == x, x=x, y=result)  # tf.where, which broadcasts, takes twice as long

    def fits(part: Tensor) -> Tensor:
        return (tf.reduce_max(part) <= upper) & (tf.reduce_min(part) >= lower)

    def all_clamped() -> Tensor:
        return _between(x, lower, upper)

    first = fits(tf.reshape(x, [-1])[:_TINY])
    return tf.cond(first, lambda: tf.cond(fits(x), lambda: x, all_clamped), all_clamped)


def clamped_eagerly(x: Tensor, lower: float, upper: float) -> Tensor:
    """An eager tensor on the host with each element between two bounds, ``x`` itself where nothing is clipped; 0 fits."""
    if host.fits(array(x), lower, upper, threads):
        return x
    return _between(x, _constant(lower, x.dtype), _constant(upper, x.dtype))


@functools.lru_cache(64)
def _constant(value: float, dtype: Any) -> Tensor:
    """An eager number on the host, made once: that takes longer than to clip a small tensor."""
    with tf.device("CPU:0"):
        return tf.constant(value, dtype)


def _between(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return tf.raw_ops.ClipByValue(t=x, clip_value_min=lower, clip_value_max=upper)
