"""Variables, IndexedSlices, nests and errors of TensorFlow."""

from __future__ import annotations

import collections
import importlib.util
import inspect
import sys
import types
from typing import Any, ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf
from frameworks.tensorflow import framework
from oracle import ulps

import gradclip
from gradclip.backends.tensorflow import TensorFlowBackend, versions
from gradclip.dialects import optax, tensorflow, torch

v1 = tf.compat.v1

ROWS = [2, 0, 2]
VALUES = [[3.0, 0.0], [2.0, 0.0], [1.0, 0.5]]
SPARSE_RULES = {
    "global": torch.clip_grad_norm(1.0),
    "tensor": tensorflow.clip_by_norm(1.0),
    "axes 0": tensorflow.clip_by_norm(1.0, axes=[0]),
    "axes 1": tensorflow.clip_by_norm(1.0, axes=[1]),
    "rms": optax.clip_by_block_rms(0.5),
    "value": tensorflow.clip_by_value(-1.0, 3.5),
    "unclipped": torch.clip_grad_norm(1e6),
}


def slices(dtype: str = "float32") -> Any:
    return framework.sparse(ROWS, framework.make(VALUES, dtype), 4)


def norms(result: gradclip.ClipResult) -> Any:
    return None if result.norm is None else np.sort(np.ravel(result.norm))


# ---- sparse gradients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("name", SPARSE_RULES)
def test_sparse_is_as_dense(name: str, dtype: str) -> None:
    rule = SPARSE_RULES[name]
    if name == "value" and dtype == "complex64":
        with pytest.raises(TypeError, match="no order"):
            gradclip.clip(slices(dtype), rule)
        return
    sparse = gradclip.clip(slices(dtype), rule)
    dense = gradclip.clip(framework.make(framework.densify(slices(dtype)), dtype), rule)
    assert isinstance(sparse.grads, tf.IndexedSlices)
    assert sparse.grads.dtype == dtype
    assert ulps(framework.densify(sparse.grads), framework.read(dense.grads), dtype) <= 1
    if name not in ("value", "axes 1"):  # these two have no norms of absent rows
        assert ulps(norms(sparse), norms(dense), "float32") <= 1


@pytest.mark.drawn(10)
@pytest.mark.parametrize("how", framework.jits)
@pytest.mark.parametrize("name", SPARSE_RULES)
def test_sparse_when_traced(name: str, how: str) -> None:
    rule = SPARSE_RULES[name]
    (got,) = framework.jit(how, lambda grads: [gradclip.clip(grads[0], rule).grads])([slices()])
    want = gradclip.clip(slices(), rule).grads
    assert isinstance(got, tf.IndexedSlices)
    assert sorted(got.indices.numpy()) == [0, 2]  # no value may be read here, so the rows are merged even if nothing is clipped
    assert ulps(framework.densify(got), framework.densify(want), "float32") <= 2


def test_sparse_with_others() -> None:
    dense = framework.densify(slices())
    result = gradclip.clip_by_global_norm([slices(), None, tf.constant([6.0])], 1.0)
    want = np.sqrt(np.sum(dense**2) + 36)
    assert ulps(result[1].numpy(), want, "float32") <= 1
    assert [type(g) for g in result[0]] == [tf.IndexedSlices, type(None), type(tf.constant(1.0))]
    assert ulps(framework.densify(result[0][0]), dense / want, "float32") <= 2


def test_sparse_without_a_dense_shape() -> None:
    gradient = tf.IndexedSlices(tf.constant(VALUES), tf.constant(ROWS))
    for order, want in ((2.0, np.sqrt(20.25)), (float("inf"), 4.0), (1.0, 6.5)):
        assert ulps(gradclip.clip(gradient, torch.clip_grad_norm(1.0, order)).norm, want, "float32") <= 1
    result = gradclip.clip_by_norm(gradient, 1.0)
    assert result.dense_shape is None
    # a mean counts all rows, and a negative order the zeros of rows that are not stored
    for rule in (optax.clip_by_block_rms(0.5), torch.clip_grad_norm(1.0, -1.0), torch.clip_grad_norm(1.0, float("-inf"))):
        match = r"size of a sparse gradient is unknown\.\nReceived: dense_shape=None\nHint: make it"
        with pytest.raises(ValueError, match=match):
            gradclip.clip(gradient, rule)


def test_duplicates_are_added_in_float32() -> None:
    values = framework.make([[2048.0], [1.0], [1.0], [1.0]], "float16")  # added one by one in float16 it would stay 2048
    gradient = framework.sparse([1, 1, 1, 1], values, 2)
    assert framework.densify(gradclip.clip(gradient, torch.clip_grad_norm(1.0, 1.0)).grads)[1] == 1.0
    assert gradclip.clip(gradient, torch.clip_grad_norm(1.0)).norm == 2052.0  # 2051 in float16


def test_rows_without_duplicates_are_left_alone() -> None:
    gradient = framework.sparse([3, 1], [[3.0, 0.0], [4.0, 0.0]], 4)
    assert list(gradclip.clip_by_norm(gradient, 1.0).indices.numpy()) == [3, 1]


def test_optimizer_steps_with_sparse() -> None:
    def step(dense: bool) -> np.ndarray:
        table = tf.Variable(np.arange(8.0).reshape(4, 2) / 8)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, ROWS) ** 2 * [[1.0], [2.0], [3.0]])
        gradient = tape.gradient(loss, table)
        assert isinstance(gradient, tf.IndexedSlices)
        clipped = gradclip.clip_by_norm(tf.convert_to_tensor(gradient) if dense else gradient, 0.5)
        keras.optimizers.SGD(0.1).apply_gradients([(clipped, table)])
        return table.numpy()  # type: ignore[no-any-return]

    assert ulps(step(dense=False), step(dense=True), "float64") <= 1


@pytest.mark.parametrize("dense", [False, True])
def test_optimizer_of_tensorflow_1_steps_with_sparse(dense: bool) -> None:
    start = np.arange(8.0).reshape(4, 2) / 8
    with tf.Graph().as_default(), v1.Session() as session:
        table = tf.Variable(start)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ROWS) ** 2)
        optimizer = v1.train.GradientDescentOptimizer(0.125)
        ((gradient, variable),) = optimizer.compute_gradients(loss)
        assert isinstance(gradient, tf.IndexedSlices)
        clipped = gradclip.clip_by_norm(tf.convert_to_tensor(gradient) if dense else gradient, 0.5)
        assert isinstance(clipped, tf.Tensor if dense else tf.IndexedSlices)
        train = optimizer.apply_gradients([(clipped, variable)])
        session.run(v1.global_variables_initializer())
        session.run(train)
        got = session.run(table)
    exact = 2 * start * np.array([[1.0], [0.0], [2.0], [0.0]])
    assert ulps(got, start - 0.125 * exact * 0.5 / np.linalg.norm(exact), "float64") <= 2


# ---- variables ------------------------------------------------------------------------------------------------------------


def test_variable_in_place() -> None:
    for how in (lambda f: f, tf.function, lambda f: tf.function(f, jit_compile=True)):
        variables = [tf.Variable(values, trainable=False, dtype=tf.float32) for values in ([3.0, 0.0], [4.0])]
        how(lambda: gradclip.clip_(variables, torch.clip_grad_norm(1.0)).grads)()  # noqa: B023
        assert ulps(np.concatenate([v.numpy() for v in variables]), [0.6, 0.0, 0.8], "float32") <= 12  # torch's epsilon of 1e-6
    assert gradclip.clip_([variables[0], variables[0]], tensorflow.clip_by_value(-0.5, 0.25)).grads[0] is variables[0]
    assert list(variables[0].numpy()) == [0.25, 0.0]


def test_variable_by_value() -> None:
    variable = tf.Variable([3.0, 4.0])
    for rule in (tensorflow.clip_by_norm(1.0), tensorflow.clip_by_norm(9.0), tensorflow.clip_by_value(-9.0, 9.0)):
        result = gradclip.clip(variable, rule).grads
        assert isinstance(result, tf.Tensor)
        variable.assign([0.0, 0.0])
        assert result.numpy().all()
        variable.assign([3.0, 4.0])


def test_variables_as_parameters() -> None:
    gradient = tf.constant([[3.0, 1.0], [4.0, 1.0]])
    rule = optax.adaptive_grad_clip(0.5)
    want = [[0.3, 0.35355339059327373], [0.4, 0.35355339059327373]]  # half of each column's norm, which is 1
    weights = [[0.6, 0.0], [0.8, 1.0]]
    for parameter in (tf.Variable(weights), keras.Variable(weights), tf.Variable(weights, dtype=tf.float64)):
        assert ulps(gradclip.clip([gradient], rule, params=[parameter]).grads[0].numpy(), want, "float32") <= 4


def test_not_writable() -> None:
    variable = tf.Variable([3.0, 4.0], trainable=False)
    text = (
        "This gradient cannot be written in place.\nReceived: an immutable EagerTensor\n"
        "Hint: use gradclip.clip, which returns new ones; a tf.Variable with trainable=False can be written."
    )
    for kind in (TypeError, ValueError, RuntimeError):
        with pytest.raises(kind) as raised:
            gradclip.clip_([variable, tf.constant([1.0])], torch.clip_grad_norm(1.0))
        assert str(raised.value) == text
    with pytest.raises(TypeError, match="an immutable IndexedSlices"):
        gradclip.clip_(slices(), torch.clip_grad_norm(1.0))
    with tf.Graph().as_default(), pytest.raises(TypeError, match="In a graph of TensorFlow 1 nothing would run the assignment"):
        gradclip.clip_(tf.Variable([3.0, 4.0], trainable=False), torch.clip_grad_norm(1.0))
    assert list(variable.numpy()) == [3.0, 4.0]


# ---- containers ------------------------------------------------------------------------------------------------------------

Pair = collections.namedtuple("Pair", "kernel bias")


class Field:
    def __init__(self, name: str) -> None:
        self.name = name


class Attrs:
    """An attrs class, as far as ``tf.nest`` checks."""

    __attrs_attrs__: ClassVar[list[Field]] = [Field("a"), Field("b")]

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


class Custom:
    """A class that implements ``tf.nest``'s protocol."""

    def __init__(self, label: str, *parts: Any) -> None:
        self.label, self.parts = label, parts

    def __tf_flatten__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.label, self.parts

    @classmethod
    def __tf_unflatten__(cls, metadata: Any, components: tuple[Any, ...]) -> Custom:
        return cls(metadata, *components)


def test_nest() -> None:
    three, four = tf.constant([3.0]), tf.constant([4.0])
    tree = {
        "z": Pair([three, None], {2: four, "a": None}),
        "a": collections.OrderedDict(x=()),
        1: (Attrs(None, [tf.zeros(1)]),),
    }
    tree["custom"] = Custom("label", tf.zeros(2), None)
    result = gradclip.clip(tree, torch.clip_grad_norm(1.0))
    got = result.grads
    assert result.norm == 5.0
    assert list(got) == ["z", "a", 1, "custom"]
    assert type(got["z"]) is Pair
    assert got["z"].kernel[1] is None
    assert list(got["z"].bias) == [2, "a"]
    assert ulps([got["z"].kernel[0][0], got["z"].bias[2][0]], [0.6, 0.8], "float32") <= 4
    assert type(got["a"]) is collections.OrderedDict
    assert type(got[1][0]) is Attrs
    assert got[1][0].a is None
    assert got["custom"].label == "label"
    assert tree["z"].kernel[0] is three  # the container itself is unchanged


@pytest.mark.parametrize(
    "make", [lambda x: Attrs(x, None), lambda x: Custom("c", x), lambda x: types.MappingProxyType({"a": x})]
)
def test_container_of_its_own(make: Any) -> None:
    tree = make(tf.constant([3.0, 4.0]))
    got = gradclip.clip(tree, torch.clip_grad_norm(1.0)).grads
    assert type(got) is type(tree)
    assert ulps(tf.nest.flatten(got)[0], [0.6, 0.8], "float32") <= 4
    with pytest.raises(TypeError, match=r"No backend knows tensors of type|A name is not a tensor"):
        gradclip.clip(make("text"), torch.clip_grad_norm(1.0))


def test_what_a_module_tracks() -> None:
    holder = tf.Module()
    holder.all = {"b": [tf.constant([3.0])], "a": ([tf.constant([4.0])], None), "p": Pair([tf.zeros(1)], None)}
    got = gradclip.clip(holder.all, torch.clip_grad_norm(1.0)).grads
    assert list(got) == ["b", "a", "p"]
    assert got["p"].bias is None
    assert ulps([got["b"][0][0], got["a"][0][0][0]], [0.6, 0.8], "float32") <= 4
    assert holder.all["b"][0][0] == 3


def test_culprit_has_its_path() -> None:
    tree = {"layer": Pair(tf.constant([1.0, np.inf]), Attrs(None, tf.constant([1.0])))}
    with pytest.raises(RuntimeError, match=r"Received: \['layer'\]\.kernel: 1 of 2 elements\n"):
        gradclip.clip(tree, torch.clip_grad_norm(1.0, error_if_nonfinite=True))


# ---- errors and arithmetic ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_errors_are_also_tensorflows(wrap: Any) -> None:
    cases = [
        (tf.constant([1, 2]), tensorflow.clip_by_norm(1.0), "dtype=int32", TypeError),
        (tf.constant(["a"]), tensorflow.clip_by_norm(1.0), "dtype=string", TypeError),
        (tf.ones((2, 3)), tensorflow.clip_by_norm(1.0, axes=[2]), r"axes=\[2\], shape=\(2, 3\)", ValueError),
        (tf.ones((2, 3)), tensorflow.clip_by_norm(1.0, axes=[0, -2]), r"axes=\[0, -2\], shape=\(2, 3\)", ValueError),
    ]
    for gradient, rule, text, kind in cases:
        for expected in (kind, tf.errors.InvalidArgumentError):
            with pytest.raises(expected, match=f"\nReceived: {text}"):
                wrap(lambda: gradclip.clip(gradient, rule).grads)()  # noqa: B023


def test_looking_is_free_unless_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    x, backend = tf.constant([3.0, 4.0]), TensorFlowBackend()
    assert backend.reads_free([x])
    with tf.GradientTape() as tape:
        assert not backend.reads_free([x])
        with tape.stop_recording():
            assert backend.reads_free([x])
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.record", None)  # as in a TensorFlow that has moved it
    spec = importlib.util.spec_from_file_location("gradclip.backends.moved", versions.__file__)
    assert spec is not None
    assert spec.loader is not None
    moved = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(moved)
    assert moved.is_recording() is True
    monkeypatch.setattr(versions, "is_recording", moved.is_recording)
    assert not backend.reads_free([x])


def test_clip_by_value() -> None:
    whole = tf.constant([100, -100, 3], tf.int8)
    assert list(gradclip.clip_by_value(whole, -1000, 5).numpy()) == [5, -100, 3]
    x = tf.constant([1.0, -4.0, np.nan, 2.0])
    bounds = tf.constant([0.5, 9.0, 9.0, np.nan], tf.float64)
    with pytest.raises(ValueError, match="A bound must be a number, not NaN"):
        gradclip.clip_by_value(x, -3.0, bounds)
    traced = tf.function(lambda x, bounds: gradclip.clip_by_value(x, -3.0, bounds))(x, bounds)  # no value may be read here
    assert np.array_equal(traced, [0.5, -3.0, np.nan, np.nan], equal_nan=True)
    assert np.array_equal(gradclip.clip_by_value(x, 4.0, 1.0), [4.0, 4.0, np.nan, 4.0], equal_nan=True)
    half = gradclip.clip_by_value(framework.make([1.0, 7e4], "bfloat16"), -1.0, 0.3)
    assert list(framework.read(half)) == [0.30078125, 0.30078125]


@pytest.mark.parametrize("shape", [(1 << 21, 2), (2, 1 << 20, 2), (2, 1 << 21)])
def test_sums_stay_accurate(shape: tuple[int, ...]) -> None:
    """TensorFlow's own sum over leading axes accumulates one by one."""
    values = np.random.default_rng(0).random(shape, np.float32)
    axes = tuple(range(len(shape) - 1)) if len(shape) == 2 and shape[0] > 2 else (1,)
    got = gradclip.clip(tf.constant(values), tensorflow.clip_by_norm(1.0, axes=axes)).norm
    assert ulps(got, np.sqrt(np.sum(values.astype(np.float64) ** 2, axis=axes, keepdims=True)), "float32") <= 2


@pytest.mark.parametrize("name", ["clip_by_norm", "clip_by_global_norm", "clip_by_value", "global_norm"])
def test_signatures(name: str) -> None:
    def bare(function: Any) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]

    assert bare(getattr(gradclip, name)) == bare(getattr(tf, name, None) or getattr(tf.linalg, name))


def test_a_scalar_of_numpy_among_tensors() -> None:
    clipped, norm = gradclip.clip_by_global_norm([tf.constant([3.0]), np.float64(4.0)], 1.0)
    assert [x.dtype for x in clipped] == [tf.float32] * 2
    assert ulps(norm.numpy(), 5.0, "float32") <= 1
