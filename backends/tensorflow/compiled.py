"""The lanes of graphs: TensorFlow's fused operations for its executor, and simple operations for XLA.

``EuclideanNorm`` squares, adds up and takes the root in one pass. Over a large tensor its float32 sum drifts. Over short rows
it does not, and the rows are few enough for float64. XLA lacks the operation, and fuses simple ones. Measured:

- ``tf.nn.l2_loss`` and ``EuclideanNorm`` of a whole float32 tensor: 15 ulp off from 64 Ki elements on
- XLA's plain float32 sum under ``jit_compile``: 117 ulp at 1 Mi elements, 1,153 at 16 Mi
- float64 copies: within 1 ulp, in 2.7 to 10 times the time; rows: within 1 ulp, at most 5 % slower than one pass
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradclip.backends.tensorflow import versions
from gradclip.backends.tensorflow.lanes import TINY, TensorFlowReference, is_accelerator, is_few, joined, parted, threads
from gradclip.backends.tensorflow.xla import by_bits, divided, plain
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import WIDE, promote
from gradclip.core.lane import Into, Lane
from gradclip.core.ranges import NARROW, RIGHT

__all__ = ["AcceleratorGraphLane", "GraphLane", "XlaLane", "traced"]

Norm = Callable[[Sequence[Tensor]], Tensor]

_NARROW = tuple(map(tf.as_dtype, NARROW))
_ROW = 512  # elements of a float32 sum: at most 3 ulp off, where 4096 elements are 7 ulp off
_FEW = 1 << 14  # elements up to which a select costs less than a branch
_COUNT, _ALL = 8, 1 << 17  # tensors, and elements in all, up to which a select of each costs less than a branch
_SOME = 1 << 15  # elements in all up to which float64 copies cost less than a check
_ALONE, _MIDDLE = 1 << 16, 1 << 18  # elements from which TensorFlow sums in threads; up to which waking them takes longer


def traced(backend: Backend, tensors: Sequence[Tensor]) -> Lane | None:
    """The lane of traced tensors; None for the reference."""
    if _is_vectorized():
        return None
    if any(map(is_accelerator, {x.device for x in tensors})):
        return AcceleratorGraphLane(backend)
    return XlaLane(backend) if versions.is_traced_by_xla() else GraphLane(backend)


def _is_vectorized() -> bool:
    """Whether ``tf.vectorized_map`` traces this; it would run a fused operation for one example after the other."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if "loop_body" in graph.get_name_scope():
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


class TracedLane(TensorFlowReference):
    """Symbolic tensors. Its Euclidean norms are differentiable, and within a few ulp for any length."""

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        values = self._narrow(tensors) if order == 2 else None
        if values is None:
            return super().total(tensors, order, wide)
        return self.backend.cast(self._euclidean(values), promote(["float32", wide or "float32"]))

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        values = self._narrow(tensors) if order == 2 else None
        if values is None:
            return super().each(tensors, order)
        return [tf.cast(self._euclidean([x]), tf.float32) for x in values]

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        # :meth:`between` has another derivative at NaN, and none in forward mode
        if not isinstance(lower, float) or not isinstance(upper, float) or into == "place" or versions.is_recording():
            return super().clamp(tensors, lower, upper, into)
        results = []
        for x in tensors:
            values, rebuild = self.backend.rows(x)
            values = tf.convert_to_tensor(values)
            if values.dtype.is_floating:
                results.append(rebuild(self.between(values, lower, upper)))
            else:
                results += super().clamp([x], lower, upper, into)
        return results

    def measured(self, tensors: Sequence[Tensor]) -> Tensor:
        """The norm over all, in float64 on the host."""
        raise NotImplementedError

    def between(self, x: Tensor, lower: float, upper: float) -> Tensor:
        """Each element of a tensor of floats between two bounds; elements within them to the bit."""
        raise NotImplementedError

    def _narrow(self, tensors: Sequence[Tensor]) -> list[Tensor] | None:
        """The values, if all are of dtypes whose norms are float32."""
        values = [tf.convert_to_tensor(self.backend.rows(x)[0]) for x in tensors]
        return values if all(x.dtype in _NARROW for x in values) else None

    def _euclidean(self, tensors: Sequence[Tensor]) -> Tensor:
        """:meth:`measured` with a derivative, 0 where the norm is."""

        @tf.custom_gradient
        def found(*tensors: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
            def slopes(given: Tensor) -> list[Tensor]:
                n = self._euclidean(tensors)
                return [_direction(x, n) * tf.cast(given, x.dtype) for x in tensors]

            return self.measured(tensors), slopes

        return found(*tensors)


def _direction(x: Tensor, n: Tensor) -> Tensor:
    """``x / n``, 0 where that is 0 / 0."""
    n = tf.cast(n, tf.float32)
    return tf.cast(tf.cast(x, tf.float32) / tf.where(n > 0, n, tf.ones_like(n)), x.dtype)


# ---- TensorFlow's own executor ---------------------------------------------------------------------------------------------


class GraphLane(TracedLane):
    """For TensorFlow's executor, where each operation costs, and each reads and writes memory."""

    def measured(self, tensors: Sequence[Tensor]) -> Tensor:
        tiny, large = _by_size(tensors)
        tensors = [tensors[i] for i in large] + [joined([tensors[i] for i in places]) for places in tiny]
        counts = [x.shape.num_elements() for x in tensors]
        if None not in counts and sum(counts) <= _SOME:
            return _wide(tensors)
        # XLA takes the simple operations, even if it was unknown while tracing that XLA would compile the function
        return _by_device(_checked, plain, tensors)

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        if into == "place" or isinstance(factors, (list, float)) or factors.shape.rank != 0:
            return super().scale(tensors, factors, into)
        values, rebuilds = zip(*map(self.backend.rows, tensors), strict=True)
        clipped = _clipped(list(map(tf.convert_to_tensor, values)), factors)
        return [rebuild(x) for rebuild, x in zip(rebuilds, clipped, strict=True)]

    def product(self, x: Tensor, coefficient: Any) -> Tensor:
        if isinstance(coefficient, float) or coefficient.shape.rank != 0:
            return super().product(x, coefficient)
        return _clipped([tf.convert_to_tensor(x)], coefficient)[0]

    def between(self, x: Tensor, lower: float, upper: float) -> Tensor:
        """By one operation, which flushes subnormal numbers. It selects ``x`` itself, without a read, if all elements fit.

        The test reads the first elements first. For half precision the operation compares one by one, and flushes nothing.
        """
        least, most = (self.backend.asarray(bound, x.dtype.name, None) for bound in (lower, upper))

        def fused() -> Tensor:
            return tf.raw_ops.ClipByValue(t=x, clip_value_min=least, clip_value_max=most)

        def fits(part: Tensor) -> Tensor:
            return (tf.reduce_max(part) <= most) & (tf.reduce_min(part) >= least)

        if x.dtype.size == 2:
            return fused()
        if is_few(x, _FEW):
            return tf.raw_ops.Select(condition=(result := fused()) == x, x=x, y=result)
        return tf.cond(fits(tf.reshape(x, [-1])[:TINY]), lambda: tf.cond(fits(x), lambda: x, fused), fused)


def _by_size(tensors: Sequence[Tensor]) -> tuple[list[list[int]], list[int]]:
    """The places of tiny tensors, those of one dtype in one list, and the places of the others."""
    tiny: dict[Any, list[int]] = {}
    large: list[int] = []
    for i, x in enumerate(tensors):
        (tiny.setdefault(x.dtype, []) if is_few(x, TINY) else large).append(i)
    return list(tiny.values()), large


def _wide(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of all by copies in float64, where no square overflows or vanishes."""
    halves = [tf.nn.l2_loss(tf.cast(x, tf.float64)) for x in tensors]
    return tf.sqrt(2 * (halves[0] if len(halves) == 1 else tf.add_n(halves)))


def _by_device(executor: Norm, xla: Norm, tensors: Sequence[Tensor]) -> Tensor:
    """One norm if TensorFlow's executor runs the graph, the other if XLA compiles it; decided after tracing.

    TensorFlow replaces a ``Case`` by its branch, but calls that of a ``StatelessCase``, as ``tf.switch_case`` has it: 10 us.
    """
    device = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in tensors]

    def made(norm: Norm) -> Any:
        return tf.function(lambda *given: norm(given), autograph=False).get_concrete_function(*specs)

    index = tf.raw_ops.DeviceIndex(device_names=[device])
    branches = [made(executor), made(xla)]
    found = tf.raw_ops.Case(branch_index=index, input=tensors, Tout=[tf.float64], branches=branches, output_shapes=[()])
    return found[0]


def _checked(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of all, by short rows in float32; all in float64 if squares in these have overflowed or vanished."""
    norms, rest = [], []
    for x in tensors:
        if is_few(x, TINY):
            rest.append(tf.cast(tf.reshape(x, [-1]), tf.float32))
            continue
        rows, left = divided(tf.cast(x, tf.float32), _ROW)
        norms += [_norm(part, 1) for part in _parts(rows)]
        if left is not None:
            rest.append(left)
    # an element is its own norm: so few need no operation of their own
    n = _norm(tf.cast(joined([*norms, *rest]), tf.float64), 0)
    least, most = map(np.float64, RIGHT["float32"])
    bounded = tf.raw_ops.ClipByValue(t=n, clip_value_min=least, clip_value_max=most)  # one operation less than two comparisons
    return tf.cond(tf.equal(bounded, n), lambda: n, lambda: _wide(tensors))  # NaN equals nothing


def _parts(rows: Tensor) -> list[Tensor]:
    """Rows of a tensor of medium size in parts, each for one thread if there are several; the parts are views."""
    count = rows.shape.num_elements()
    if count is None or not _ALONE < count <= _MIDDLE or threads() == 1:
        return [rows]
    most, rest = divmod(count, _ALONE)
    return list(tf.split(rows, [_ALONE // _ROW] * most + [rest // _ROW] * (rest > 0)))


def _norm(x: Tensor, axis: int) -> Tensor:
    return tf.raw_ops.EuclideanNorm(input=x, axis=[axis])


def _clipped(tensors: list[Tensor], factor: Tensor) -> list[Tensor]:
    """Each times a 0-d factor, without reading it; if it is 1, the same to the bit, without a copy except of tiny tensors.

    It joins tiny tensors, because one copy of all costs less than an operation for each. Of few small tensors a select of each
    costs less than both.
    """
    fits = factor >= 1
    if len(tensors) <= _COUNT and sum([x.shape.num_elements() or _ALL for x in tensors]) < _ALL:
        return [tf.raw_ops.Select(condition=fits, x=x, y=_times(x, factor)) for x in tensors]
    results = list(tensors)
    tiny, large = _by_size(tensors)
    for places in tiny:
        given = [tensors[i] for i in places]
        x = joined(given)
        # tf.where, which broadcasts, takes twice as long
        product = tf.raw_ops.Select(condition=fits, x=x, y=_times(x, factor))
        for i, part in zip(places, parted(product, given), strict=True):
            results[i] = part
    if large:
        given = [tensors[i] for i in large]
        products = tf.cond(fits, lambda: given, lambda: [_times(x, factor) for x in given])
        for i, product in zip(large, tf.nest.flatten(products), strict=True):
            results[i] = product
    return results


def _times(x: Tensor, factor: Tensor) -> Tensor:
    """``x * factor``, rounded once."""
    wide = WIDE[x.dtype.name]
    return tf.cast(tf.cast(x, wide) * tf.cast(factor, wide), x.dtype)


# ---- XLA -------------------------------------------------------------------------------------------------------------------


class XlaLane(TracedLane):
    """For XLA, which fuses elementwise operations, and compiles slow conditionals."""

    def measured(self, tensors: Sequence[Tensor]) -> Tensor:
        return plain(tensors)

    def between(self, x: Tensor, lower: float, upper: float) -> Tensor:
        return by_bits(x, lower, upper) if lower < 0 < upper else self.backend.clip(x, lower, upper)


# ---- accelerators, with XLA and without ------------------------------------------------------------------------------------


class AcceleratorGraphLane(TracedLane):
    """For accelerators: sums in float32, which they add up in trees, and no branch, which would wait for the host.

    A number times 1 is the same to the bit, except a subnormal number on a device that flushes them.
    """

    def measured(self, tensors: Sequence[Tensor]) -> Tensor:
        return tf.sqrt(2 * tf.add_n([tf.nn.l2_loss(tf.cast(x, tf.float32)) for x in tensors]))

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        if into == "place" or isinstance(factors, (list, float)) or factors.shape.rank != 0:
            return super().scale(tensors, factors, into)
        return [rebuild(_times(tf.convert_to_tensor(x), factors)) for x, rebuild in map(self.backend.rows, tensors)]

    def product(self, x: Tensor, coefficient: Any) -> Tensor:
        if isinstance(coefficient, float) or coefficient.shape.rank != 0:
            return super().product(x, coefficient)
        return _times(tf.convert_to_tensor(x), coefficient)

    def between(self, x: Tensor, lower: float, upper: float) -> Tensor:
        return self.backend.clip(self.backend.clip(x, None, upper), lower, None)  # no select: no subnormal number is lost there
