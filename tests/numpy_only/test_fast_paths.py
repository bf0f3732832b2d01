"""Without any one of the fast paths the results are the same; and the fast paths need almost no memory."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frameworks.numpy import framework
from oracle import norm, ulps

import gradclip
from gradclip import Rule
from gradclip.dialects import keras, optax, tensorflow, torch

SIZES = [1, 3, 256, 1000, 8193, 4396, 65836]
RULES: dict[str, Callable[[float], Rule]] = {
    "global norm": torch.clip_grad_norm,
    "global norm, p = 1": lambda limit: torch.clip_grad_norm(limit, 1.0),
    "global norm, p = 3": lambda limit: torch.clip_grad_norm(limit, 3.0),
    "global norm, p = inf": lambda limit: torch.clip_grad_norm(limit, math.inf),
    "each norm": keras.clipnorm,
    "each root mean square": optax.clip_by_block_rms,
    "value": lambda limit: tensorflow.clip_by_value(-limit, limit / 2),
}


def normal(dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    return [framework.make(rng.normal(size=size), dtype) for size in SIZES]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("dtype", framework.dtypes)
def test_what_is_not_finite(value: float, order: float, dtype: str) -> None:
    for size in SIZES:
        values = np.ones(size)
        values[size // 2] = value
        g = framework.make(values, dtype)
        for grads in ([g], [g, framework.make([1.0], dtype)]):
            n = gradclip.norm(grads, torch.clip_grad_norm(1.0, order))
            assert math.isnan(n) if math.isnan(value) else n == math.inf


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("order", [-math.inf, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("dtype", framework.dtypes)
def test_every_order(order: float, dtype: str) -> None:
    grads = [framework.make(np.random.default_rng(3).uniform(-9, 9, size=n), dtype) for n in (1, 5, 40, 8200)]
    for g in grads:
        want = norm(framework.read(g), order)
        got = gradclip.norm(g, torch.clip_grad_norm(1.0, order)) if order else np.count_nonzero(framework.read(g))
        assert ulps(np.array(got), want, "float32") <= 1
    assert math.isnan(gradclip.norm(grads, torch.clip_grad_norm(1.0, math.nan)))


@pytest.mark.usefixtures("compiled")
def test_bounds_that_cross() -> None:
    """The lower bound wins, as in the formula."""
    for dtype in ("float32", "bfloat16"):
        g = framework.make([-9.0, 0.0, 9.0, math.nan], dtype)
        for clip in (gradclip.clip, gradclip.clip_):
            grads = clip(g.copy(), tensorflow.clip_by_value(2.0, -2.0)).grads
            assert np.array_equal(framework.read(grads), [2.0, 2.0, 2.0, math.nan], equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["global norm", "global norm, p = 1", "each norm", "value"])
def test_memory_in_place(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need less than 1 % of 16 Mi elements, in one large and many small arrays, with two threads."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    part = framework.make(np.random.default_rng(4).normal(size=2**20), dtype)
    grads = [np.tile(part, 15), *np.split(part.copy(), 2**8)]
    rule = RULES[name](0.01)
    gradclip.clip_([g[:1].copy() for g in grads], rule)  # makes the objects that gradclip caches
    tracemalloc.start()
    try:
        gradclip.clip_(grads, rule)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.01 * sum(g.nbytes for g in grads)


def test_memory_of_several_dtypes() -> None:
    grads = [framework.make(np.ones(2**22), dtype) for dtype in ("float32", "bfloat16", "float16", "float32")]
    tracemalloc.start()
    try:
        gradclip.clip_(grads, RULES["global norm"](0.01))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.01 * sum(g.nbytes for g in grads)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "new"])
def test_an_array_at_an_odd_address(dtype: str, in_place: bool) -> None:
    x = framework.make(np.arange(1.0, 301.0), dtype)

    def again() -> np.ndarray:
        return np.frombuffer(bytearray(b" " + x.tobytes()), np.uint8)[1:].view(x.dtype)

    odd = again()
    assert not odd.flags.aligned
    for rule in (torch.clip_grad_norm(1.0), torch.clip_grad_value(5.0)):
        clip = gradclip.clip_ if in_place else gradclip.clip
        got, want = clip([again() if in_place else odd], rule), clip([x.copy()], rule)
        assert got.norm == want.norm or ulps(np.array(got.norm), np.array(want.norm), "float32") <= 1
        assert ulps(framework.read(got.grads[0]), framework.read(want.grads[0]), dtype) <= 1


LAYOUTS: list[tuple[str, list[np.ndarray]]] = [
    ("few", [np.full((3, 5), i, np.float32) for i in range(1, 6)]),
    ("two runs", [np.full(shape, i, np.float32) for i, shape in enumerate([(4,)] * 20 + [(2, 3)] * 20 + [(4,)] * 3)]),
    ("more than are together", [np.full(200, i, np.float64) for i in range(1, 200)]),
    ("Fortran's order among them", [np.array(np.arange(6.0).reshape(2, 3) + i, order=o) for i, o in enumerate("CFFC" * 10)]),
    ("empty", [*(np.empty((0, 3), np.float32) for _ in range(40)), np.ones(3, np.float32)]),
]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("arrays", [arrays for _, arrays in LAYOUTS], ids=[name for name, _ in LAYOUTS])
def test_results_that_share_memory_are_apart(arrays: list[np.ndarray]) -> None:
    was = [x.copy("K") for x in arrays]
    results = gradclip.clip(arrays, optax.clip_by_global_norm(0.5)).grads
    factor = 0.5 / math.sqrt(sum(float((x.astype(np.float64) ** 2).sum()) for x in arrays))
    for result, x, before in zip(results, arrays, was, strict=True):
        assert (type(result), result.shape, result.strides, result.dtype) == (np.ndarray, x.shape, x.strides, x.dtype)
        np.testing.assert_allclose(result, x * factor, rtol=3e-7)
        np.testing.assert_array_equal(x, before)
    kept = [x.copy() for x in results[1:]]
    results[0][...] = 99
    for result, before in zip(results[1:], kept, strict=True):
        np.testing.assert_array_equal(result, before)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gaps_change_no_result(dtype: str) -> None:
    """Bounds and zeros match those of a contiguous array."""
    values = np.array([-5.0, -0.0, 0.0, 3.0, 1.0, np.inf, 65504.0, 1e-7, np.nan], dtype)
    gaps = np.zeros((values.size, 2), dtype)[:, 0]
    gaps[...] = values
    for lower, upper in ((0.0, 1.0), (-1.0, -0.0), (1 + 2**-11 + 2**-40, 2.0), (-1.0, 65519.99999)):
        rule = tensorflow.clip_by_value(lower, upper)
        one, other = (gradclip.clip([x], rule).grads[0] for x in (values, gaps))
        assert one.tobytes() == np.ascontiguousarray(other).tobytes()
    large = np.ones((1 << 11, 1 << 11), dtype)[:, ::2]
    clipped = gradclip.clip([large], tensorflow.clip_by_value(0.0, 0.5)).grads[0]
    assert clipped.flags.c_contiguous
    assert (clipped == 0.5).all()
