"""The fast paths of NumPy need almost no memory, and take arrays of any layout; tests/core/test_fast_paths.py has the rest."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from frameworks.numpy import framework
from oracle import ulps
from rules import KINDS

import gradclip
from gradclip.dialects import optax, tensorflow, torch


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["global", "global, p = 1", "tensor", "value"])
def test_memory_in_place(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need less than 1 % of 16 Mi elements, in one large and many small arrays, with two threads."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    part = framework.make(np.random.default_rng(4).normal(size=2**20), dtype)
    grads = [np.tile(part, 15), *np.split(part.copy(), 2**8)]
    rule = KINDS[name](0.01)
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
        gradclip.clip_(grads, KINDS["global"](0.01))
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
