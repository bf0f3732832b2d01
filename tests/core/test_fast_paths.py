"""The fast paths of every framework: hard values, sizes and layouts, with and without the compiled loops.

``test_lanes.py`` compares each lane with the reference; here the results are known. The thresholds are low, so that small
tensors reach the paths for large ones.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import LARGE, Framework
from oracle import norm, ulps
from rules import Make, is_dense, kinds

import gradclip
from gradclip.core.registry import find
from gradclip.dialects import keras, tensorflow, torch

DTYPES = ("float16", "bfloat16", "float32", "float64")
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "few": [(3, 4), (5,), (), (30, 41)],
    "several of one shape": [(7, 5)] * 8 + [(36,)] * 8 + [(9,)] * 8 + [(16,)],
    "a large one": [(LARGE // 4 + 1, 4), (9,)],
    "one": [(4 * LARGE + 5,)],
}
CROSSING = tensorflow.clip_by_value(2.0, -2.0)

pytestmark = pytest.mark.usefixtures("soon_large")
both = pytest.mark.usefixtures("compiled")
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_form = pytest.mark.parametrize("in_place", [False, True], ids=["new", "in place"])
each_size = pytest.mark.parametrize("size", [4, 2 * LARGE])


def clipped(backend: Framework, grads: Any, rule: gradclip.Rule, in_place: bool) -> Any:
    """Return the clipped gradients; a framework without writable tensors always makes new ones."""
    return (gradclip.clip_ if in_place and backend.mutable else gradclip.clip)(grads, rule).grads


def most(backend: Framework, order: float = 2.0) -> int:
    """The tolerance of an eager norm, in ulp; releases of a framework that sum less accurately have that of a traced norm."""
    return 1 if backend.ulps == Framework.ulps else backend.ulps_of(order)


def transposed(backend: Framework, values: np.ndarray, dtype: str) -> Any:
    """Return a matrix that fills its memory in another order, if the framework has such."""
    made = backend.make(values.T.copy(), dtype)
    return made.T if hasattr(made, "T") else backend.make(values, dtype)


# ---- norms -----------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.drawn(48, torch=24, tensorflow=24, paddle=24, jax=2)
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "complex128"])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_what_is_not_finite(backend: Framework, shapes: list[tuple[int, ...]], dtype: str, value: float) -> None:
    arrays = [np.ones(shape) for shape in shapes]
    arrays[-1].flat[arrays[-1].size // 2] = value
    grads = [backend.make(array, dtype) for array in arrays]
    norms = [gradclip.norm(grads, torch.clip_grad_norm(1.0, order)) for order in (1.0, 2.0, 3.0, math.inf)]
    *others, last = gradclip.norm(grads, keras.clipnorm(1.0))
    for n in (*norms, last):
        assert math.isnan(n) if math.isnan(value) else n == math.inf
    assert all(math.isfinite(n) for n in others)


@pytest.mark.needs("jits")
@pytest.mark.drawn(4, torch=1, tensorflow=2, paddle=2)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_not_finite_traced(backend: Framework, value: float, dtype: str) -> None:
    def measured(grads: list[Any]) -> list[Any]:
        return [gradclip.norm(grads, torch.clip_grad_norm(1.0)), gradclip.norm(grads, keras.clipnorm(1.0))[-1]]

    grads = [*(backend.make(np.ones(shape), dtype) for shape in SHAPES["few"]), backend.make([1.0, value], dtype)]
    for how in backend.jits:
        for n in map(backend.read, backend.jit(how, measured)(grads)):
            assert np.isnan(n) if math.isnan(value) else n == math.inf


@pytest.mark.accuracy
@both
@pytest.mark.drawn(200, torch=36, tensorflow=36, paddle=36, jax=2)
@pytest.mark.parametrize("order", [-math.inf, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "complex128"])
def test_every_order(backend: Framework, order: float, dtype: str) -> None:
    rng = np.random.default_rng(1)
    grads = [backend.make(rng.uniform(-9, 9, n), dtype) for n in (1, 40, *[33] * 8, 2 * LARGE + 1)]
    rule = dataclasses.replace(keras.clipnorm(1.0), order=order)
    for x, n in zip(grads, gradclip.norm(grads, rule), strict=True):
        assert ulps(np.array(float(n)), norm(backend.read(x), order), "float32") <= most(backend, order)
    assert math.isnan(gradclip.norm(grads, torch.clip_grad_norm(1.0, math.nan)))


@pytest.mark.accuracy
@both
@pytest.mark.parametrize("size", [9, 35, LARGE])
def test_squares_that_leave_float32(backend: Framework, size: int) -> None:
    """Each gradient has a scale of its own: some are right at once, others are not."""
    values = np.array([0.0, 1e30, 1.0, 1e-30, *([] if backend.flushes_subnormals else [1e-40])] * 3, np.float32)
    grads = [backend.make(np.full(size, value)) for value in values]
    norms = gradclip.norm(grads, keras.clipnorm(1.0))
    assert ulps(np.array(list(map(float, norms))), values.astype(np.float64) * size**0.5, "float32") <= most(backend)
    for value in sorted(set(values.tolist())):
        some = [g for g, v in zip(grads, values, strict=True) if v in (value, 0.0)]
        count = size * 3 if value else 0
        assert ulps(np.array(float(gradclip.norm(some, torch.clip_grad_norm(1.0)))), value * count**0.5, "float32") <= most(
            backend
        )


@pytest.mark.accuracy
@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_squares_that_leave_float64(backend: Framework, scale: float, way: str) -> None:
    def measured(grads: list[Any]) -> list[Any]:
        return [gradclip.norm(grads, torch.clip_grad_norm(1.0)), gradclip.norm(grads, keras.clipnorm(1.0))[0]]

    grads = [backend.make(np.array([3.0, 4.0]) * scale, "float64"), backend.make(np.zeros(LARGE), "float64")]
    for n in (backend.jit(way, measured) if way else measured)(grads):
        assert ulps(np.array(float(n)), np.array(5 * scale), "float64") <= 4


@both
@pytest.mark.drawn(64, torch=32, tensorflow=32, paddle=32, jax=16)
@pytest.mark.parametrize("make_rule", kinds(is_dense).values(), ids=kinds(is_dense))
@each_dtype
def test_many_that_are_transposed(backend: Framework, make_rule: Make, dtype: str) -> None:
    rng = np.random.default_rng(1)
    values = [rng.standard_normal((5, 7)) for _ in range(10)]
    found = gradclip.clip([transposed(backend, v, dtype) for v in values], make_rule(0.5)).grads
    expected = gradclip.clip([backend.make(v, dtype) for v in values], make_rule(0.5)).grads
    for this, wanted in zip(found, expected, strict=True):
        assert ulps(backend.read(this), backend.read(wanted), dtype) <= (8 if dtype == "float64" else 1)  # another order


# ---- by value, and zeros -----------------------------------------------------------------------------------------------------


@both
@each_form
@each_dtype
@each_size
def test_bounds_that_cross(backend: Framework, size: int, dtype: str, in_place: bool) -> None:
    """The lower bound wins, as in the formula."""
    x = backend.make([-9.0, 0.0, math.nan, *[9.0] * (size - 3)], dtype)
    got = backend.read(clipped(backend, x, CROSSING, in_place))
    assert np.array_equal(got, [2.0, 2.0, math.nan, *[2.0] * (size - 3)], equal_nan=True)


@both
@each_form
@pytest.mark.drawn(32, jax=8)
@each_dtype
@each_size
def test_zeros_keep_their_sign(backend: Framework, size: int, dtype: str, in_place: bool) -> None:
    for rule in (torch.clip_grad_norm(1.0), keras.clipnorm(1.0), torch.clip_grad_value(1.0)):
        got = backend.read(clipped(backend, backend.make([100.0, *[-0.0] * (size - 1)], dtype), rule, in_place))
        assert 0 < got[0] < 1.1
        assert np.signbit(got[1:]).all()
        assert not got[1:].any()


@both
@each_form
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bounds", [(-0.5, 0.25), (-math.inf, 0.25), (0.0, 0.0), (0.1, 0.2), (-1e300, 1e300)], ids=str)
def test_every_element_is_clipped_alike(backend: Framework, bounds: tuple[float, float], dtype: str, in_place: bool) -> None:
    """The position of an element makes no difference: vector operations take several at a time, the rest go one by one."""
    values = np.array([math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-30, -7.0, 0.3], dtype)
    for size in (1, 7, 37, 2 * LARGE + 5):
        for shift in range(len(values)):
            array = np.resize(np.roll(values, shift), size)
            got = backend.read(clipped(backend, backend.make(array, dtype), tensorflow.clip_by_value(*bounds), in_place))
            with np.errstate(over="ignore"):
                wanted = np.maximum(np.minimum(array, bounds[1]), bounds[0]).astype(dtype)
            assert np.array_equal(got, wanted, equal_nan=True)
            if bounds[0] < 0 < bounds[1]:
                assert np.array_equal(np.signbit(got[array == 0]), np.signbit(array[array == 0]))


@pytest.mark.parametrize("size", [37, 2 * LARGE + 5])
def test_one_element_beyond_a_bound_wherever_it_is(backend: Framework, size: int, way: str) -> None:
    def clip(grads: list[Any]) -> list[Any]:
        return list(gradclip.clip(grads, tensorflow.clip_by_value(-0.5, 1.0)).grads)

    values = [np.where(np.arange(size) == place, beyond, 0.25) for place in (0, size // 2, size - 1) for beyond in (2.0, -2.0)]
    clipped = (backend.jit(way, clip) if way else clip)([backend.make(x) for x in values])
    for got, x in zip(clipped, values, strict=True):
        assert np.array_equal(backend.read(got), np.clip(x, -0.5, 1.0))


# ---- memory ------------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.needs("mutable")
@pytest.mark.parametrize("limit", [1.0, 1e30], ids=["clipped", "unclipped"])
@each_size
def test_new_gradients_have_memory_of_their_own(backend: Framework, size: int, limit: float) -> None:
    """Apart from the gradients', and from each other's, although small ones are made together."""
    values = np.full(size, 2.0)
    for make_rule in (torch.clip_grad_norm, keras.clipnorm, torch.clip_grad_value):
        grads = [backend.make(values) for _ in range(12)]
        first, *others = gradclip.clip(grads, make_rule(limit)).grads
        were = [backend.read(x).copy() for x in others]
        first[...] = backend.make(np.full(size, 5.0))
        grads[1][...] = backend.make(np.full(size, 7.0))
        assert [backend.read(x).tolist() for x in others] == [was.tolist() for was in were]
        assert backend.read(first).tolist() == [5.0] * size
        assert backend.read(grads[0]).tolist() == values.tolist()


# ---- which gradients ---------------------------------------------------------------------------------------------------------


def test_one_gradient_twice_is_not_distinct(backend: Framework, compiled: bool) -> None:
    x, owner = backend.make([3.0, 4.0]), find(backend.make([1.0]))
    assert owner is not None
    lane, other = owner.lane([x, backend.make([3.0, 4.0])]), owner.lane([x, x])
    assert ("" if lane is None else lane.dtype) == ("float32" if compiled or backend.name == "torch" else "")
    assert other is None or not other.dtype
    assert gradclip.norm([x, x], torch.clip_grad_norm(1.0)) == 5.0


def odd(backend: Framework) -> dict[str, Any]:
    found = {"complex": backend.make([1.0], "complex64"), "integer": backend.make([1], "int32")}
    return {**found, "sparse": backend.sparse([1], [[1.0]], 3)} if backend.has_sparse else found


@both
@pytest.mark.parametrize("name", ["complex", "integer", "sparse"])
def test_what_the_loops_do_not_take(backend: Framework, name: str) -> None:
    owner = find(backend.make([1.0]))
    assert owner is not None
    if name in odd(backend):
        lane = owner.lane([backend.make([1.0]), odd(backend)[name]])
        assert lane is None or not lane.dtype
