"""Norms and products from TensorFlow's fused operations: as fast as memory, and right at any length. No backend itself.

``EuclideanNorm`` squares, adds up and takes the root in one pass. Over a whole tensor its float32 sum drifts, by 7 ulp in equal
numbers; over short rows it does not, and their norms are few enough for float64. XLA lacks the operation, and fuses plain ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from gradclip.backend import Tensor
from gradclip.dtypes import WIDE

try:
    from tensorflow.python.eager.record import could_possibly_record as _could_record
except ImportError:  # there is no public way to ask; taking it for recorded costs speed and nothing else

    def _could_record() -> bool:
        return True


try:
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext as _is_in_xla
except ImportError:  # there is no public way to ask; without an answer XLA compiles a conditional, which is slower

    def _is_in_xla(graph: Any) -> bool:
        return False


NARROW = (tf.float32, tf.bfloat16, tf.float16)  #: dtypes whose squares neither overflow nor vanish in float64
_ROW = 512  # elements to a float32 sum in a few lanes: 3 ulp at the worst, where 4096 are off by 7
_LANES = (16, 64)  # for XLA, which adds up one after the other: so many sums side by side of so many elements each
_FEW = 1 << 14  # up to so many elements a copy costs less than a branch, and one in float64 stays in the cache
_SOME = 1 << 18  # up to so many elements in all, copies in float64 cost less than a check; of more, many would be there at once
_TINY = 1 << 12  # up to so many elements a copy costs less than an operation
_BLOCK = 1 << 21  # elements that are cast at once: those stay in the cache
_LEAST, _MOST = 2.0**-30, 2.0**60  # between them no float32 square has overflowed, or vanished that matters


def is_traced_by_xla() -> bool:
    """Whether XLA is to compile what is being traced, as far as is known at this time."""
    return bool(_is_in_xla(tf.compat.v1.get_default_graph()))


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
    groups = [_with_tiny_joined(group) for group in groups]
    if tf.executing_eagerly():  # where both ways would be gone, so that the one that is always right is the faster
        return _roots([_wide_halves(group, _BLOCK) for group in groups])
    if is_vectorized() or is_traced_by_xla():
        return _stacked(list(map(_plain, groups)))
    most = _SOME if _are_few(groups) else _TINY
    halves = [_wide_halves([x for x in group if is_few(x, most)], _FEW) for group in groups]
    long = {i: rest for i, group in enumerate(groups) if (rest := [x for x in group if not is_few(x, most)])}
    if long:
        found = _checked_or_plain(list(long.values()))
        for i, half in zip(long, _unstacked(found * found / 2, len(long)), strict=True):
            halves[i].append(half)
    return _roots(halves)


def _wide_halves(tensors: Sequence[Tensor], block: int) -> list[Tensor]:
    """Half the sum of the squares of each block, in float64, where none overflows or vanishes; XLA has these operations too."""
    return [tf.nn.l2_loss(tf.cast(part, tf.float64)) for x in tensors for part in _blocks(x, block)]


def _roots(halves: Sequence[list[Tensor]]) -> Tensor:
    """The norms from halves of sums of squares."""
    return tf.sqrt(2 * _stacked([each[0] if len(each) == 1 else tf.add_n(each) for each in halves]))


def is_vectorized() -> bool:
    """Whether ``tf.vectorized_map`` traces this, which takes the fused operation for one example after the other."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if "loop_body" in graph.get_name_scope():
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def _checked_or_plain(groups: list[list[Tensor]]) -> Tensor:
    """XLA takes the plain way, even of a function that was traced before anyone knew that XLA would compile it."""
    device = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return tf.__internal__.execute_fn_for_device(
        {device: lambda: _checked(groups)}, lambda: _stacked(list(map(_plain, groups)))
    )


def _checked(groups: list[list[Tensor]]) -> Tensor:
    """The norms by way of float32, and those by way of float64 if one of them has overflowed or vanished."""
    found = _stacked(list(map(_fused, groups)))
    is_right = (found > _LEAST) & (found < _MOST)
    if len(groups) > 1:
        is_right = tf.reduce_all(is_right)
    return tf.cond(is_right, lambda: found, lambda: _roots([_wide_halves(group, _BLOCK) for group in groups]))


def _with_tiny_joined(group: Sequence[Tensor]) -> list[Tensor]:
    """The same elements, those of tiny tensors of one dtype in one tensor."""
    joined = [_joined([group[i] for i in places]) for places in _tiny(group)]
    return [x for x in group if not is_few(x, _TINY)] + joined


def _flat(x: Tensor) -> Tensor:
    return x if x.shape.rank == 1 else tf.reshape(x, [-1])


def _joined(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else tf.concat(list(map(_flat, tensors)), 0)


def _tiny(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Where there are tiny tensors, those of one dtype in one list."""
    places: dict[Any, list[int]] = {}
    for i, x in enumerate(tensors):
        if is_few(x, _TINY):
            places.setdefault(x.dtype, []).append(i)
    return list(places.values())


def is_few(x: Tensor, most: int) -> bool:
    """Whether it is known that there are no more elements."""
    count = x.shape.num_elements()
    return count is not None and count <= most


def _are_few(groups: Sequence[Sequence[Tensor]]) -> bool:
    """Whether it is known that there are no more elements than :data:`_SOME` in all."""
    counts = [x.shape.num_elements() for group in groups for x in group]
    return None not in counts and sum(counts) <= _SOME


def _divided(x: Tensor, row: int) -> tuple[Tensor, Tensor | None]:
    """Rows of so many elements, and the rest, None where there is none."""
    count = x.shape.num_elements()
    length = tf.size(x, tf.int64) if count is None else count
    whole = length - length % row
    if count is not None and whole == count:
        return tf.reshape(x, [-1, row]), None
    flat = _flat(x)
    return tf.reshape(flat[:whole], [-1, row]), flat[whole:]


def _fused(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of all by the fused operation."""
    parts = [part for x in tensors for part in _row_norms(x)]
    return _euclidean(tf.cast(_joined(parts), tf.float64), 0)


def _euclidean(x: Tensor, axis: int) -> Tensor:
    return tf.raw_ops.EuclideanNorm(input=x, axis=[axis])


def _row_norms(x: Tensor) -> Iterator[Tensor]:
    """Vectors of float32: the norms of short rows."""
    if x.dtype != tf.float32:
        for block in _blocks(x, _BLOCK):
            yield from _row_norms(tf.cast(block, tf.float32))
        return
    rows, rest = _divided(x, _ROW)
    yield _euclidean(rows, 1)
    if rest is not None:
        yield tf.reshape(_euclidean(rest, 0), [1])


def _blocks(x: Tensor, length: int) -> list[Tensor]:
    """The elements in pieces of a length, as far as tracing knows how many there are; without a copy."""
    count = x.shape.num_elements()
    if count is None or count < 2 * length:
        return [x]
    rows, rest = _divided(x, length)
    return [*tf.unstack(rows), *([] if rest is None else [rest])]


def _plain(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of all by operations that XLA fuses, in float64, of which no copy is made then."""
    squares = []
    for x in tensors:
        rest: Tensor | None = x
        if not is_few(x, _TINY) and x.shape.num_elements() is not None:  # XLA cannot slice at a place that it does not know
            rows, rest = _divided(x, _LANES[0] * _LANES[1])
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
    parts = [_cast_times(part, factor) for part in _blocks(x, _BLOCK)]
    return tf.reshape(tf.concat(parts, 0), x.shape)


def _cast_times(x: Tensor, factor: Tensor) -> Tensor:
    wide = tf.raw_ops.Cast(x=x, DstT=factor.dtype)
    return tf.raw_ops.Cast(x=tf.raw_ops.Mul(x=wide, y=factor), DstT=x.dtype)


def clipped(tensors: Sequence[Tensor], factor: Tensor) -> list[Tensor]:
    """While tracing, each times a 0-d factor that nobody may look at; itself to the bit, and no copy of it, where that is 1.

    Small ones are copied: that costs less than a branch, and of all tiny ones together less than an operation for each.
    """
    fits = factor >= 1
    results: list[Tensor] = list(tensors)

    def scaled(x: Tensor) -> Tensor:
        return times(x, tf.cast(factor, WIDE[x.dtype.name]))

    large = [i for i, x in enumerate(tensors) if not is_few(x, _FEW)]
    if large:
        given = [tensors[i] for i in large]
        products = tf.cond(fits, lambda: given, lambda: list(map(scaled, given)))
        for i, product in zip(large, tf.nest.flatten(products), strict=True):
            results[i] = product
    small = [[i] for i, x in enumerate(tensors) if is_few(x, _FEW) and not is_few(x, _TINY)]
    for places in (*small, *_tiny(tensors)):
        given = [tensors[i] for i in places]
        joined = _joined(given)
        # tf.where, which broadcasts, takes twice as long
        product = tf.raw_ops.Select(condition=fits, x=joined, y=scaled(joined))
        for i, part in zip(places, _parted(product, given), strict=True):
            results[i] = part
    return results


def _parted(joined: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """What was joined, as the tensors that it was joined from."""
    if len(like) == 1:
        return [joined]
    parts = tf.split(joined, [x.shape.num_elements() for x in like])
    return [part if x.shape.rank == 1 else tf.reshape(part, x.shape) for part, x in zip(parts, like, strict=True)]


def is_recording() -> bool:
    """Whether a gradient tape or a forward accumulator may be looking."""
    return bool(_could_record())
