"""The fast paths: with each of them taken out, the results are the same; and they take next to no memory."""

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
from gradclip import Backend, Rule
from gradclip.backends import host
from gradclip.backends.numpy import NumpyBackend
from gradclip.dialects import keras, optax, tensorflow, torch

PATHS = {
    "plain": ("plain", "fast_total"),  # which is for plain arrays only
    "norm": ("fast_norm", "fast_norms", "fast_total"),
    "norms": ("fast_norms", "fast_total"),
    "scale": ("scale", "scaled", "scale_"),
    "clamp": ("clamp", "clamped", "clamp_"),
}
SIZES = [1, 3, 256, 1000, 8193, host._BLOCK // 4 + 300, host._BLOCK + 300]
RULES: dict[str, Callable[[float], Rule]] = {
    "global norm": torch.clip_grad_norm,
    "global norm, p = 1": lambda limit: torch.clip_grad_norm(limit, 1.0),
    "global norm, p = 3": lambda limit: torch.clip_grad_norm(limit, 3.0),
    "global norm, p = inf": lambda limit: torch.clip_grad_norm(limit, math.inf),
    "each norm": keras.clipnorm,
    "each root mean square": optax.clip_by_block_rms,
    "value": lambda limit: tensorflow.clip_by_value(-limit, limit / 2),
}

pytestmark = pytest.mark.usefixtures("compiled")


def normal(dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    return [framework.make(rng.normal(size=size), dtype) for size in SIZES]


def mixed() -> list[Any]:
    """What is not plain, in one list."""
    rng = np.random.default_rng(1)
    strided = framework.strided(rng.normal(size=(70, 300)), "bfloat16")
    twice = framework.make(rng.normal(size=(3, 5)))
    return [strided, twice, twice, framework.make(rng.normal(size=(200, 99)), "float16").T, framework.make(-2.0, "float64")]


def huge() -> list[Any]:
    """Squares that leave float32, beside numbers that do not matter."""
    rng = np.random.default_rng(2)
    return [framework.make(rng.normal(size=size) * 1e24) for size in SIZES] + [framework.make(rng.normal(size=9) * 1e-30)]


SETS = {
    "float32": lambda: normal("float32"),
    "float64": lambda: normal("float64"),
    "float16": lambda: normal("float16"),
    "bfloat16": lambda: normal("bfloat16"),
    "complex64": lambda: normal("complex64"),
    "huge": huge,
    "a column-major matrix, a number, nothing": lambda: [
        np.asfortranarray(framework.make(np.arange(2.0e4).reshape(100, 200))),
        framework.make(7.0),
        framework.make(np.zeros((2, 0))),
    ],
    "mixed": mixed,
}


def clipped(grads: list[Any], rule: Rule, in_place: bool) -> tuple[list[Any], Any]:
    result = (gradclip.clip_ if in_place else gradclip.clip)(grads, rule)
    return result.grads, result.norm


@pytest.mark.parametrize("hooks", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "new"])
@pytest.mark.parametrize("make", SETS.values(), ids=SETS)
def test_without_a_fast_path(hooks: tuple[str, ...], in_place: bool, make: Callable[[], list[Any]], monkeypatch: Any) -> None:
    for name, rule_of in RULES.items():
        if (name == "value" and make is SETS["complex64"]) or ("inf" in name and not all(g.size for g in make())):
            continue  # these have no order, and nothing no largest
        for limit in (0.01, 1e30):
            got, norm = clipped(make(), rule_of(limit), in_place)
            with monkeypatch.context() as patch:
                for hook in hooks:
                    patch.setattr(NumpyBackend, hook, getattr(Backend, hook))
                want, expected = clipped(make(), rule_of(limit), in_place)
            for mine, theirs, was in zip(got, want, make(), strict=True):
                assert mine.dtype == was.dtype
                assert ulps(framework.read(mine), framework.read(theirs), str(was.dtype)) <= 4, name
                assert limit < 1 or mine.tobytes() == was.tobytes(), name
            assert norm is None or ulps(np.array(norm), np.array(expected), "float32") <= 4, name


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


@pytest.mark.parametrize("order", [-math.inf, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("dtype", framework.dtypes)
def test_every_order(order: float, dtype: str) -> None:
    grads = [framework.make(np.random.default_rng(3).uniform(-9, 9, size=n), dtype) for n in (1, 5, 40, 8200)]
    for got, g in zip(host.norms(grads, order), grads, strict=True):
        want = norm(framework.read(g), order)
        assert ulps(np.array(got), want, "float32") <= 1
    assert host.norm(grads[0], math.nan) is None


def test_bounds_that_cross() -> None:
    """The lower one counts, as in the formula."""
    for dtype in ("float32", "bfloat16"):
        g = framework.make([-9.0, 0.0, 9.0, math.nan], dtype)
        for clip in (gradclip.clip, gradclip.clip_):
            grads = clip(g.copy(), tensorflow.clip_by_value(2.0, -2.0)).grads
            assert np.array_equal(framework.read(grads), [2.0, 2.0, 2.0, math.nan], equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["global norm", "global norm, p = 1", "each norm", "value"])
def test_memory_in_place(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 1 % of 16 Mi elements, in one large and many small arrays, by two threads."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    part = framework.make(np.random.default_rng(4).normal(size=2**20), dtype)
    grads = [np.tile(part, 15), *np.split(part.copy(), 2**8)]
    rule = RULES[name](0.01)
    gradclip.clip_([g[:1].copy() for g in grads], rule)  # what is made once
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


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "new"])
def test_an_array_at_an_odd_address(dtype: str, in_place: bool) -> None:
    x = framework.make(np.arange(1.0, 301.0), dtype)

    def again() -> np.ndarray:
        return np.frombuffer(bytearray(b" " + x.tobytes()), np.uint8)[1:].view(x.dtype)

    odd = again()
    assert not odd.flags.aligned
    for rule in (torch.clip_grad_norm(1.0), torch.clip_grad_value(5.0)):
        got, norm = clipped([again() if in_place else odd], rule, in_place)
        want, expected = clipped([x.copy()], rule, in_place)
        assert norm == expected
        assert got[0].tobytes() == want[0].tobytes()


LAYOUTS: list[tuple[str, list[np.ndarray]]] = [
    ("few", [np.full((3, 5), i, np.float32) for i in range(1, 6)]),
    ("two runs", [np.full(shape, i, np.float32) for i, shape in enumerate([(4,)] * 20 + [(2, 3)] * 20 + [(4,)] * 3)]),
    ("more than are together", [np.full(200, i, np.float64) for i in range(1, 200)]),
    ("Fortran's order among them", [np.array(np.arange(6.0).reshape(2, 3) + i, order=o) for i, o in enumerate("CFFC" * 10)]),
    ("empty", [*(np.empty((0, 3), np.float32) for _ in range(40)), np.ones(3, np.float32)]),
]


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
    """Bounds and zeros are those of an array without gaps."""
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
