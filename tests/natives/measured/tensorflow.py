"""TensorFlow's own functions, and gradclip's drop-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
from frameworks.tensorflow import framework
from natives.behaviours import Behaviours
from natives.compare import Outcome
from natives.replay import Native, Run, calls

import gradclip

THEIRS = SimpleNamespace(
    clip_by_norm=tf.clip_by_norm,
    clip_by_global_norm=tf.clip_by_global_norm,
    global_norm=tf.linalg.global_norm,
    clip_by_value=tf.clip_by_value,
)
OURS = SimpleNamespace(**{name: getattr(gradclip, name) for name in vars(THEIRS)})
PREFIX = "tf."  #: of the names of its natives


# ---- the recorded cases --------------------------------------------------------------------------------------------------


def each(function: Any) -> Run:
    """Adapt a function of one tensor to several."""

    def run(grads: list[Any], limit: Any) -> Outcome:
        return Outcome([None if g is None else function(g, limit) for g in grads])

    return run


def together(function: Any) -> Run:
    """Adapt a function of several tensors that returns them and their norm."""

    def run(grads: list[Any], limit: Any) -> Outcome:
        returned = function(grads, limit)
        return Outcome(returned[0], returned[1], returned)

    return run


CALLS = calls(
    Native("tf.clip_by_norm", each(tf.clip_by_norm), each(gradclip.clip_by_norm)),
    Native("tf.clip_by_global_norm", together(tf.clip_by_global_norm), together(gradclip.clip_by_global_norm)),
)

# ---- behaviours ----------------------------------------------------------------------------------------------------------

#: recorded behaviours without a counterpart here, with the reason
NOT_REPLAYED = {
    "input numpy f64": "NumPy arrays are a framework of their own to gradclip, and come back as NumPy arrays",
    "new object returned even if unclipped": "a tensor cannot be written, so that which object comes back makes no difference",
    "clip_by_average_norm (v1) clip .8": "gradclip does not take over clip_by_average_norm",
}

NORM, GLOBAL = "tf.clip_by_norm", "tf.clip_by_global_norm"
MEASURE, VALUE = "tf.linalg.global_norm", "tf.clip_by_value"
BEHAVIOURS = Behaviours()
of = BEHAVIOURS.of

ROWS = [[-3.0, 0.0, 0.0], [4.0, 0.0, 3.0]]  # norms 3 and 5
APART = ([2, 0], [[3.0, 0.0], [-4.0, 1.5]], 4)  # no row twice, not in order
SLICES = ([0, 2, 2], [[3.0, 0.0], [2.0, 0.0], [2.0, 0.0]], 4)  # norm 5; without merging the rows 4.123


def rows() -> Any:
    return tf.constant(ROWS)


@of(NORM, "axes None", axes=None)
@of(NORM, "axes [0]", axes=[0])
@of(NORM, "axes [1]", axes=[1])
@of(NORM, "axes 0", axes=0)
@of(NORM, "axes 1", axes=1)
@of(NORM, "axes -1", axes=-1)
@of(NORM, "axes [-1]", axes=[-1])
@of(NORM, "axes [0, 1]", axes=[0, 1])
@of(NORM, "axes [1, 0]", axes=[1, 0])
@of(NORM, "axes [0, 0]", axes=[0, 0])
@of(NORM, "axes []", axes=[])
@of(NORM, "axes [2]", axes=[2])
@of(NORM, "axes (0,)", axes=(0,))
@of(NORM, "axes a tensor [0]", axes=tf.constant([0]))
@of(NORM, "axes a tensor 1", axes=tf.constant(1))
@of(NORM, "axes '0'", axes="0")
@of(NORM, "axes 1.0", axes=1.0)
def _(api: Any, axes: Any) -> Any:
    return api.clip_by_norm(rows(), 4.0, axes)


@of(NORM, "axes [0, 2] of three")
def _(api: Any) -> Any:
    return api.clip_by_norm(tf.reshape(tf.range(24.0), (2, 3, 4)), 5.0, [0, 2])


@of(NORM, "clip_norm one a row", limit=tf.constant([[1.0], [2.0]]), axes=[1])
@of(NORM, "clip_norm of shape (1,)", limit=tf.constant([1.0]), axes=None)
@of(NORM, "clip_norm a float64 tensor", limit=tf.constant(4.0, tf.float64), axes=None)
@of(NORM, "clip_norm an int tensor", limit=tf.constant(4), axes=None)
@of(NORM, "clip_norm a Python int", limit=4, axes=None)
@of(NORM, "clip_norm a NumPy float32", limit=np.float32(4), axes=None)
@of(NORM, "clip_norm a 0-d NumPy array", limit=np.array(4.0), axes=None)
@of(NORM, "clip_norm a NaN tensor", limit=tf.constant(float("nan")), axes=None)
@of(NORM, "clip_norm a negative 0-d NumPy array", limit=np.array(-1.0), axes=None)
def _(api: Any, limit: Any, axes: Any) -> Any:
    return api.clip_by_norm(rows(), limit, axes)


@of(NORM, "clip_norm that would enlarge the result")
def _(api: Any) -> Any:
    return api.clip_by_norm(tf.ones((2, 3, 1)), tf.constant([1.0, 2.0]))


@of(NORM, "of a Python list", make=lambda: [3.0, 4.0])
@of(NORM, "of a Python list of int", make=lambda: [3, 4])
@of(NORM, "of None", make=lambda: None)
@of(NORM, "of a RaggedTensor", make=lambda: tf.ragged.constant([[3.0], [4.0, 5.0]]))
@of(NORM, "of a SparseTensor", make=lambda: tf.sparse.from_dense(tf.constant([3.0, 4.0])))
@of(NORM, "of uint8", make=lambda: tf.constant([3, 4], tf.uint8))
@of(NORM, "of a tf.Variable", make=lambda: tf.Variable([3.0, 4.0]))
def _(api: Any, make: Any) -> Any:
    return api.clip_by_norm(make(), 1.0)


def parts(slices: Any) -> Any:
    return type(slices).__name__, slices.values, slices.indices, slices.dense_shape


@of(NORM, "IndexedSlices with duplicate rows")
def _(api: Any) -> Any:
    return parts(api.clip_by_norm(framework.sparse(*SLICES), 1.0))


@of(NORM, "IndexedSlices with duplicate rows, axes [0]")
def _(api: Any) -> Any:
    return parts(api.clip_by_norm(framework.sparse(*SLICES), 1.0, [0]))


@of(MEASURE, "IndexedSlices with duplicate rows")
def _(api: Any) -> Any:
    return api.global_norm([framework.sparse(*SLICES)])


@of(GLOBAL, "IndexedSlices, None and dense")
def _(api: Any) -> Any:
    (slices, nothing, dense), norm = api.clip_by_global_norm([framework.sparse(*SLICES), None, tf.zeros(2)], 1.0)
    return parts(slices), nothing, dense, norm


@of(GLOBAL, "a tuple comes back as a list")
def _(api: Any) -> Any:
    return type(api.clip_by_global_norm((tf.ones(2),), 1.0)[0]).__name__


@of(GLOBAL, "of a tensor", make=rows)
@of(GLOBAL, "of a generator", make=lambda: (t for t in [rows()]))
@of(GLOBAL, "of a dict", make=lambda: {"a": rows()})
@of(GLOBAL, "of a str", make=lambda: "abc")
@of(GLOBAL, "of an array", make=lambda: np.ones(3, np.float32))
@of(GLOBAL, "of nested lists of numbers", make=lambda: [[3.0, 4.0], [0.0, 12.0]])
def _(api: Any, make: Any) -> Any:
    return api.clip_by_global_norm(make(), 4.0)


@of(GLOBAL, "use_norm 10", norm=10.0)
@of(GLOBAL, "use_norm 1, understated", norm=1.0)
@of(GLOBAL, "use_norm inf", norm=float("inf"))
def _(api: Any, norm: float) -> Any:
    return api.clip_by_global_norm([rows()], 4.0, tf.constant(norm))


@of(GLOBAL, "use_norm in float16")
def _(api: Any) -> Any:
    return api.clip_by_global_norm([tf.constant([3.0, 4.0], tf.float16)], 4.0, tf.constant(8.0, tf.float16))


@of(MEASURE, "both stages in float16")
def _(api: Any) -> Any:
    grads = [tf.fill((250, 240), tf.constant(300.0, tf.float16))]
    return api.clip_by_global_norm(grads, 4.0, api.global_norm(grads))


@of(MEASURE, "float16", dtype=tf.float16)
@of(MEASURE, "bfloat16", dtype=tf.bfloat16)
def _(api: Any, dtype: Any) -> Any:
    return api.global_norm([tf.constant([3.0, 4.0], dtype)])


@of(GLOBAL, "use_norm a Python float")
def _(api: Any) -> Any:
    return api.clip_by_global_norm([rows()], 4.0, 10.0)


@of(GLOBAL, "clip_norm a float64 tensor", limit=tf.constant(4.0, tf.float64))
@of(GLOBAL, "clip_norm an int tensor", limit=tf.constant(4))
@of(GLOBAL, "clip_norm a vector", limit=tf.constant([1.0, 1.0, 4.0]))
def _(api: Any, limit: Any) -> Any:
    return api.clip_by_global_norm([rows()], limit)


@of(VALUE, "IndexedSlices with duplicate rows", bounds=(-1.0, 3.0), slices=SLICES)
@of(VALUE, "IndexedSlices", bounds=(-1.0, 2.0), slices=APART)
@of(VALUE, "IndexedSlices, bounds above 0", bounds=(1.0, 2.0), slices=APART)
@of(VALUE, "IndexedSlices, bounds below 0", bounds=(-2.0, -1.0), slices=APART)
@of(VALUE, "IndexedSlices, a bound a column", bounds=(tf.constant([0.5, -1.0]), 2.0), slices=APART)
@of(VALUE, "IndexedSlices, bounds above 0 that cross", bounds=(3.0, 2.0), slices=APART)
def _(api: Any, bounds: Any, slices: Any) -> Any:
    return parts(api.clip_by_value(framework.sparse(*slices), *bounds))


@of(VALUE, "IndexedSlices of an unknown height, bounds above 0")
def _(api: Any) -> Any:
    return parts(api.clip_by_value(tf.IndexedSlices(tf.constant([[3.0, 0.0]]), tf.constant([2])), 1.0, 2.0))


@of(VALUE, "IndexedSlices in a tf.function, bounds above 0")
def _(api: Any) -> Any:
    def clipped(values: Any) -> Any:
        return api.clip_by_value(tf.IndexedSlices(values, tf.constant([2, 0]), tf.constant([4, 2])), 1.0, 2.0)

    return parts(tf.function(clipped)(tf.constant([[3.0, 0.0], [-1.0, 1.5]])))


@of(VALUE, "integers, bounds that are not whole", t=[3, -4], lower=-3.1, upper=3.1)
@of(VALUE, "bounds that cross", t=[3.0, 9.0], lower=4.0, upper=2.0)
@of(VALUE, "bounds of NaN", t=[3.0, 9.0], lower=float("nan"), upper=float("nan"))
@of(VALUE, "a bound that would enlarge the result", t=[3.0, 9.0], lower=[[1.0, 1.0], [2.0, 2.0]], upper=9.0)
@of(VALUE, "a bound a row", t=ROWS, lower=[[2.0], [1.0]], upper=9.0)
def _(api: Any, t: Any, lower: Any, upper: Any) -> Any:
    bounds = [tf.constant(bound) if isinstance(bound, list) else bound for bound in (lower, upper)]
    return api.clip_by_value(tf.constant(t), *bounds)


@of(NORM, "derivative, clipped", at=[3.0, 4.0], limit=1.0)
@of(NORM, "derivative at zeros", at=[0.0, 0.0], limit=1.0)
@of(NORM, "derivative, unclipped", at=[0.3, 0.4], limit=1.0)
@of(NORM, "derivative where the norm is the limit", at=[3.0, 4.0], limit=5.0)
def _(api: Any, at: list[float], limit: float) -> Any:
    x = tf.constant(at)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(api.clip_by_norm(x, limit))
    return tape.gradient(value, x)


@of(GLOBAL, "derivative, clipped", at=[3.0, 4.0])
@of(GLOBAL, "derivative at zeros", at=[0.0, 0.0])
def _(api: Any, at: list[float]) -> Any:
    x = tf.constant(at)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(api.clip_by_global_norm([x], 1.0)[0][0])
    return tape.gradient(value, x)


@of(NORM, "tf.function with XLA")
def _(api: Any) -> Any:
    return tf.function(lambda t: api.clip_by_norm(t, 1.0), jit_compile=True)(tf.constant([3.0, 4.0]))


@of(NORM, "tf.function with an unknown shape")
def _(api: Any) -> Any:
    signature = [tf.TensorSpec(None, tf.float32)]
    return tf.function(lambda t: api.clip_by_norm(t, 1.0), input_signature=signature)(tf.constant([3.0, 4.0]))
