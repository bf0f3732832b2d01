"""TensorFlow: eager and symbolic tensors, variables, IndexedSlices; tf.function, XLA, and TF 1's graphs and sessions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradclip.backend import Tensor
from gradclip.backends import host, tensorflow_bounds, tensorflow_distributed, tensorflow_fused, tensorflow_memory
from gradclip.containers import plain_key
from gradclip.dtypes import FLOATS, WIDE, is_one_factor
from gradclip.errors import GradclipError, NotWritableError, ShapeError
from gradclip.legacy import LegacyBackend
from gradclip.mistakes import is_keras_variable, keras_variable

_EAGER = tf.__internal__.EagerTensor
_KIND = operator.attrgetter("dtype", "device")


class TensorFlowBackend(LegacyBackend):
    """Tensors are gradients and cannot be written. A ``tf.Variable`` can, unless it is trainable: then it is a weight."""

    name = "tensorflow"

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, (tf.__internal__.types.Tensor, tf.IndexedSlices))

    def dtype(self, x: Tensor) -> str:
        return str(tf.as_dtype(x.dtype).base_dtype.name)

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        shape = tf.TensorShape(x.shape)
        if isinstance(x, tf.IndexedSlices) and shape.rank is None and x.values.shape.rank is not None:
            return (None, *x.values.shape.as_list()[1:])
        return None if shape.rank is None else tuple(shape.as_list())

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        value = tf.convert_to_tensor(x)
        return value if value.dtype.name == dtype else tf.cast(value, dtype)

    def asarray(self, value: Any, dtype: str, like: Tensor) -> Tensor:
        if isinstance(value, (int, float)):
            return _number(value, dtype)
        return tf.constant(value, dtype) if isinstance(value, (list, tuple)) else self.cast(value, dtype)

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        return tf.stack([self.cast(x, dtype) for x in tensors])

    def unstack(self, x: Tensor) -> list[Tensor]:
        return list(tf.unstack(x))

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return tf.reshape(x, shape)

    def abs(self, x: Tensor) -> Tensor:
        return tf.abs(x)

    def sqrt(self, x: Tensor) -> Tensor:
        return tf.sqrt(x)

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        keep = axes is not None
        if x.dtype != tf.float32:
            return tf.reduce_sum(x, axes, keepdims=keep)
        # TensorFlow's float32 sums drift: 11 ulp off in 5,000 equal numbers, 0.3 % in 16 million over a leading axis
        return tf.cast(tf.reduce_sum(tf.cast(x, tf.float64), axes, keepdims=keep), tf.float32)

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        largest = tf.reduce_max(x, axes, keepdims=axes is not None)
        if tf.executing_eagerly():
            return largest
        # compiled by XLA for the CPU, the maximum of (1, nan) is 1
        has_nan = tf.reduce_any(tf.math.is_nan(x), axes, keepdims=axes is not None)
        return self.where(has_nan, math.nan, largest)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        dtype = self.dtype(y if isinstance(x, (int, float)) else x)
        x, y = _operand(x, dtype), _operand(y, dtype)
        if condition.shape.rank == x.shape.rank == y.shape.rank == 0:
            return tf.raw_ops.Select(condition=condition, x=x, y=y)  # tf.where, which broadcasts, takes twice as long
        return tf.where(condition, x, y)

    def maximum(self, x: Tensor, y: Any) -> Tensor:
        return tf.maximum(x, _operand(y, self.dtype(x)))

    def minimum(self, x: Tensor, y: Any) -> Tensor:
        return tf.minimum(x, _operand(y, self.dtype(x)))

    def number(self, x: Tensor) -> float:
        return float(x.numpy().item())

    def is_concrete(self, tensors: Sequence[Tensor]) -> bool:
        if not tf.executing_eagerly() or tensorflow_fused.is_recording():
            return False
        return all(self.can_look(x) and "CPU:" in self.values(x).device for x in tensors)

    def can_look(self, x: Tensor) -> bool:
        values = self.values(x)
        return isinstance(values, tf.__internal__.EagerTensor) or (_is_variable(values) and tf.executing_eagerly())

    def check(self, tensors: Sequence[Tensor]) -> None:
        for x in tensors:
            if _is_variable(x) and is_keras_variable(type(x)):
                raise keras_variable(x)

    def is_mutable(self, x: Tensor) -> bool:
        return _is_variable(x)

    def check_writable(self, x: Tensor) -> None:
        if not _is_variable(x):
            hint = "use gradclip.clip, which returns new ones; a tf.Variable with trainable=False can be written."
            raise NotWritableError("This gradient cannot be written in place.", f"an immutable {type(x).__name__}", hint)
        if getattr(x, "trainable", False):
            hint = "pass tape.gradient(loss, variables). A variable that holds a gradient is made with trainable=False; "
            hint += "a weight is clipped by w.assign(gradclip.clip(w, rule).grads)."
            raise NotWritableError("A trainable variable is a weight, not a gradient.", f"a variable named {x.name!r}", hint)
        if not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function:
            what = "In a graph of TensorFlow 1 nothing would run the assignment."
            raise NotWritableError(what, f"a {type(x).__name__}", "use gradclip.clip, and assign what it returns.")

    def is_sparse(self, x: Tensor) -> bool:
        return isinstance(x, tf.IndexedSlices)

    def merge(self, x: Tensor) -> Tensor:
        if not isinstance(x, tf.IndexedSlices):
            return x
        rows, places = tf.unique(x.indices)
        if tf.executing_eagerly() and rows.shape == x.indices.shape:
            return x
        dtype = self.dtype(x)
        summed = tf.math.unsorted_segment_sum(self.cast(x.values, WIDE.get(dtype, dtype)), places, tf.size(rows))
        return tf.IndexedSlices(self.cast(summed, dtype), rows, x.dense_shape)

    def values(self, x: Tensor) -> Tensor:
        return x.values if isinstance(x, tf.IndexedSlices) else x

    def with_values(self, x: Tensor, values: Tensor) -> Tensor:
        return tf.IndexedSlices(values, x.indices, x.dense_shape) if isinstance(x, tf.IndexedSlices) else values

    def error(self, error: GradclipError) -> Exception:
        """An ``InvalidArgumentError`` too, which TensorFlow raises for dtypes and axes that do not fit."""
        kind = type(error)
        if kind not in _error_types:
            _error_types[kind] = _error_type(kind)
        return _error_types[kind](str(error))

    def is_container(self, x: object) -> bool:
        if _children(x) is None or isinstance(x, (list, tuple, dict)):
            return False
        return all(leaf is None or self.is_tensor(leaf) for _, leaf in self.walk(x))

    def flatten(self, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        return [leaf for _, leaf in self.walk(tree)], lambda new: _rebuild(tree, iter(new))

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """In the order of the container itself; ``tf.nest`` sorts the keys of a dict, and fails where they have no order."""
        children = _children(tree)
        if children is None:
            yield path, tree
        else:
            for name, child in children:
                yield from self.walk(child, path + name)

    def detach(self, x: Tensor) -> Tensor:
        return tf.stop_gradient(x)

    def doubt(self, tensors: Sequence[Tensor]) -> str | None:
        return tensorflow_distributed.doubt(tensors) if tf.distribute.has_strategy() else None

    def size(self, x: Tensor) -> Any:
        shape = self.shape(x)
        if shape is not None and None not in shape:
            return math.prod(length for length in shape if length is not None)
        if not isinstance(x, tf.IndexedSlices):
            return tf.size(x, out_type=tf.int64)
        if x.dense_shape is None:
            hint = "make it with tf.IndexedSlices(values, indices, dense_shape)."
            raise self.error(ShapeError("The size of a sparse gradient is not known.", "dense_shape=None", hint))
        return tf.reduce_prod(tf.cast(x.dense_shape, tf.int64))

    def plain(self, tensors: Sequence[Tensor]) -> str:
        if not tf.executing_eagerly() or tensorflow_fused.is_recording():
            return ""
        if not all(issubclass(kind, _EAGER) for kind in set(map(type, tensors))):
            return ""
        kinds = set(map(_KIND, tensors))  # asked of all at once: one by one, 2,000 gradients would take longer than their norm
        if len(kinds) > 1 or len(set(map(id, tensors))) < len(tensors):
            return ""
        name = kinds.pop()[0].name
        return name if name in FLOATS else ""

    @np.errstate(all="ignore")
    def fast_norm(self, x: Tensor, order: float) -> float | None:
        return host.norm(tensorflow_memory.array(x), order, tensorflow_memory.threads)

    @np.errstate(all="ignore")
    def fast_norms(self, tensors: Sequence[Tensor], order: float) -> list[float | None]:
        return host.norms(list(map(tensorflow_memory.array, tensors)), order, tensorflow_memory.threads)

    @np.errstate(all="ignore")
    def fast_total(self, tensors: Sequence[Tensor], order: float) -> float | None:
        return host.total(list(map(tensorflow_memory.array, tensors)), order, tensorflow_memory.threads)

    def cond(self, predicate: Tensor, then: Callable[[], Tensor], otherwise: Callable[[], Tensor]) -> Tensor:
        if tf.executing_eagerly():
            return super().cond(predicate, then, otherwise)
        return tf.cond(predicate, then, otherwise)

    def euclidean(self, tensors: Sequence[Tensor]) -> list[Tensor | None]:
        narrow = [x.dtype in tensorflow_fused.NARROW for x in tensors]
        groups = [[tf.convert_to_tensor(x)] for x, is_narrow in zip(tensors, narrow, strict=True) if is_narrow]
        found = iter(tensorflow_fused.norms(groups) if groups else ())
        return [next(found) if is_narrow else None for is_narrow in narrow]

    def euclidean_total(self, tensors: Sequence[Tensor]) -> Tensor | None:
        if any(x.dtype not in tensorflow_fused.NARROW for x in tensors):
            return None
        return tensorflow_fused.norms([[tf.convert_to_tensor(x) for x in tensors]])[0]

    def copy(self, x: Tensor) -> Tensor:
        return tf.identity(x) if _is_variable(x) else x

    def scale(self, x: Tensor, coefficient: Any) -> Tensor:
        return self.scaled([x], coefficient)[0]

    def scaled(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> list[Tensor]:
        each = coefficient if isinstance(coefficient, list) else [coefficient] * len(tensors)
        if each and isinstance(each[0], float):
            if plain and all(map(is_one_factor, each)):
                return tensorflow_memory.products(tensors, each, plain)
        elif isinstance(coefficient, list):
            return list(map(self.scale, tensors, each))
        elif _is_in_graph() and coefficient.shape.rank == 0:
            return tensorflow_fused.clipped([tf.convert_to_tensor(x) for x in tensors], coefficient)
        return [super(TensorFlowBackend, self).scale(x, c) for x, c in zip(tensors, each, strict=True)]

    def clamp(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        dtype = self.dtype(x)
        are_numbers = isinstance(lower, float) and isinstance(upper, float)
        x, lower, upper = self.cast(x, dtype), _operand(lower, dtype), _operand(upper, dtype)
        if are_numbers and not tf.executing_eagerly():
            return tensorflow_bounds.clamped(x, lower, upper)
        return tensorflow_bounds.selected(x, lower, upper)

    def clamped(self, tensors: Sequence[Tensor], lower: float, upper: float, keep: bool = False) -> list[Tensor]:
        if not lower <= 0 <= upper or "CPU:" not in tensors[0].device:
            return super().clamped(tensors, lower, upper)
        return tensorflow_memory.clamped(tensors, lower, upper)

    def assign_(self, x: Tensor, value: Tensor) -> None:
        x.assign(value)


def _is_in_graph() -> bool:
    """Whether TensorFlow's own executor is to run what is being traced: XLA fuses what takes several operations."""
    return not tf.executing_eagerly() and not tensorflow_fused.is_traced_by_xla()


def _is_variable(x: object) -> bool:
    """Whether a tensor can be assigned to: TensorFlow's own variables and those of Keras."""
    return not isinstance(x, (tf.Tensor, tf.IndexedSlices)) and hasattr(x, "assign")


def _operand(x: Any, dtype: str) -> Tensor:
    """A number or a tensor in this dtype: TensorFlow promotes none, and takes a number by itself for a float32."""
    return _number(x, dtype) if isinstance(x, (int, float)) else tf.cast(x, dtype)


def _number(value: float, dtype: str) -> Tensor:
    kind = tf.as_dtype(dtype)
    with np.errstate(over="ignore"):  # what is beyond the dtype is infinite
        return tf.constant(int(value) if kind.is_integer else value, kind)


_error_types: dict[type[GradclipError], type[GradclipError]] = {}


def _error_type(kind: type[GradclipError]) -> type[GradclipError]:
    def initialise(self: Any, text: str) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, text)
        self.args = (text,)

    body = {"__init__": initialise, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind, tf.errors.InvalidArgumentError), body)


def _children(tree: Any) -> list[tuple[str, Any]] | None:
    """The children of a container, with their names; None for a leaf. What ``tf.nest`` knows is a container."""
    if isinstance(tree, Mapping):
        return [(f"[{plain_key(key)!r}]", child) for key, child in tree.items()]
    if isinstance(tree, (list, tuple)):
        fields = getattr(tree, "_fields", None)
        return [(f".{fields[i]}" if fields else f"[{i}]", child) for i, child in enumerate(tree)]
    if hasattr(type(tree), "__attrs_attrs__"):
        return [(f".{field.name}", getattr(tree, field.name)) for field in type(tree).__attrs_attrs__]
    if hasattr(type(tree), "__tf_flatten__"):
        return [(f"[{i}]", child) for i, child in enumerate(tree.__tf_flatten__()[1])]
    return None


def _rebuild(tree: Any, leaves: Iterator[Any]) -> Any:
    children = _children(tree)
    if children is None:
        return next(leaves)
    new = [_rebuild(child, leaves) for _, child in children]
    if isinstance(tree, Mapping):
        items = dict(zip(tree, new, strict=True))
        if type(tree) is dict or not isinstance(tree, dict):
            return items if type(tree) is dict else type(tree)(items)  # type: ignore[call-arg]
        rebuilt = tree.copy()  # keeps a default factory, an order, what tf.Module tracks
        rebuilt.update(items)
        return rebuilt
    if hasattr(tree, "_fields"):
        return tree._replace(**dict(zip(tree._fields, new, strict=True)))
    if isinstance(tree, (list, tuple)):
        return type(tree)(new if isinstance(tree, list) else tuple(new))
    if hasattr(type(tree), "__attrs_attrs__"):
        return type(tree)(*new)
    return type(tree).__tf_unflatten__(tree.__tf_flatten__()[0], tuple(new))
