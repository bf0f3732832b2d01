"""The host lane of Paddle: its special cases, large tensors, and unusual memory layouts."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from frameworks.paddle import framework
from oracle import norm, ulps

import gradclip
from gradclip import Rule
from gradclip.backends.host import kernels, threads
from gradclip.backends.host.lane import HostLane
from gradclip.backends.paddle import PaddleBackend, lanes
from gradclip.backends.paddle.reference import PaddleLane
from gradclip.dialects import keras, optax, tensorflow, torch

DTYPES = ("float16", "bfloat16", "float32", "float64")
MANY, BLOCK, LARGE = 8, 1 << 8, 1 << 12
SHAPES = {
    "few": [(3, 4), (5,), (), (30, 41)],
    "several of one shape": [(7, 5)] * MANY + [(36,)] * MANY + [(9,)] * MANY + [(16,)],
    "a large one": [(LARGE // 4 + 1, 4), (9,)],
}
RULES: dict[str, Callable[[float], Rule]] = {
    "global": torch.clip_grad_norm,
    "global, p = 1": lambda limit: torch.clip_grad_norm(limit, 1.0),
    "global, p = 3": lambda limit: torch.clip_grad_norm(limit, 3.0),
    "global, p = inf": lambda limit: torch.clip_grad_norm(limit, math.inf),
    "each": keras.clipnorm,
    "each root mean square": optax.clip_by_block_rms,
    "value": lambda limit: tensorflow.clip_by_value(-limit, limit / 2),
}

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(autouse=True)
def soon_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the thresholds for blocks and large tensors, so that small tensors reach these paths."""
    monkeypatch.setattr(lanes, "_PIECE", BLOCK)
    monkeypatch.setattr(lanes, "_LARGE", LARGE)


def gradients(name: str, dtype: str) -> list[Any]:
    """Return gradients; the last one is transposed, if it is a matrix."""
    rng = np.random.default_rng(0)
    made = [framework.make(rng.standard_normal(shape), dtype) for shape in SHAPES[name]]
    return [*made[:-1], made[-1].t()] if made[-1].ndim == 2 else made


def clipped(grads: list[Any], rule: Rule, in_place: bool) -> tuple[list[Any], Any]:
    result = (gradclip.clip_ if in_place else gradclip.clip)(grads, rule)
    return [framework.read(x) for x in result.grads], result.norm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("limit", [0.01, 1e6], ids=["clipped", "not clipped"])
@pytest.mark.parametrize("form", ["in place", "new", "object"])
def test_by_several_threads(form: str, limit: float, name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paddle takes the number of threads from ``OMP_NUM_THREADS``."""
    monkeypatch.setattr(kernels, "LARGE", 1 << 10)
    monkeypatch.setattr(kernels, "PART", 1 << 8)
    monkeypatch.setattr(threads, "cores", lambda: 2)
    found: list[list[Any]] = []
    asked: list[int] = []
    allowed = threads.allowed
    monkeypatch.setattr(HostLane, "threads", staticmethod(lambda: asked.append(allowed()) or asked[-1]))
    for count in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", count)
        grads = [*gradients("a large one", dtype), *gradients("few", dtype)]
        if form == "object":
            found.append([framework.read(g) for _, g in gradclip.ClipGradByNorm(limit)([(None, g) for g in grads])])
        else:
            found.append(clipped(grads, RULES[name](limit), form == "in place")[0])
        assert asked or name != "global" or not kernels.KINDS
        assert {*asked} <= {int(count)}
        asked.clear()
    for one, several in zip(*found, strict=True):
        assert np.array_equal(several, one)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RULES)
def test_many_that_are_transposed(name: str, dtype: str) -> None:
    """Transposed tensors fill their memory, but in another order."""
    rng = np.random.default_rng(1)
    values = [rng.standard_normal((5, 7)) for _ in range(MANY + 2)]
    transposed = [framework.make(v.T.copy(), dtype).t() for v in values]
    found, _ = clipped(transposed, RULES[name](0.5), False)
    expected, _ = clipped([framework.make(v, dtype) for v in values], RULES[name](0.5), False)
    by_object = gradclip.ClipGradByNorm(0.5)([(None, framework.make(v.T.copy(), dtype).t()) for v in values])
    for this, wanted, (_, other), value in zip(found, expected, by_object, values, strict=True):
        assert ulps(this, wanted, dtype) <= (8 if dtype == "float64" else 1)  # another order of summation
        assert np.array_equal(np.sign(framework.read(other)), np.sign(value))


@pytest.mark.parametrize("order", [-math.inf, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "complex128"])
def test_every_order(order: float, dtype: str) -> None:
    rng = np.random.default_rng(1)
    tensors = [framework.make(rng.uniform(-9, 9, n), dtype) for n in (1, 5, 40, *[33] * MANY, 3 * BLOCK // 2)]
    backend = PaddleBackend()
    for x in tensors:
        (got,) = (backend.lane([x]) or PaddleLane(backend)).each([x], order)
        assert ulps(np.array(got), norm(framework.read(x), order), "float32") <= 1


NUMBERS = {
    "equal": lambda n, rng: np.full(n, 0.3337),
    "uniform": lambda n, rng: rng.random(n),
    "heavy-tailed": lambda n, rng: rng.standard_t(2, n),
    "one huge": lambda n, rng: np.where(np.arange(n) == n // 3, 1e3, 1e-3),
    "ascending": lambda n, rng: np.arange(n) / n,
    "alternating scales": lambda n, rng: np.where(np.arange(n) % 2, 1e3, 1e-3) * (1 + rng.random(n)),
    "overflowing": lambda n, rng: np.full(n, 1e30),
    "vanishing": lambda n, rng: np.full(n, 1e-30),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("make", NUMBERS.values(), ids=NUMBERS)
def test_exact_norms(make: Callable[..., np.ndarray], dtype: str) -> None:
    x = framework.make(make(2 * LARGE + 999, np.random.default_rng(2)), dtype)
    for order in (1.0, 2.0, 3.0, math.inf):
        want = norm(framework.read(x), order)
        assert ulps(np.array(gradclip.norm(x, torch.clip_grad_norm(1.0, order))), want, "float32") <= 2


@pytest.mark.parametrize("value", [1e30, 1e-30, 0.0])
@pytest.mark.parametrize("size", [35, 9])
def test_squares_that_leave_float32_in_several_of_one_shape(size: int, value: float) -> None:
    norms = gradclip.norm([paddle.full([size], value) for _ in range(MANY)], keras.clipnorm(1.0))
    assert ulps(np.array(norms), np.full(MANY, float(np.float32(value)) * size**0.5), "float32") <= 1


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite(value: float, dtype: str) -> None:
    for shapes in SHAPES.values():
        tensors = [paddle.ones(shape, dtype) for shape in shapes]
        tensors[-1] = paddle.full(shapes[-1], value, dtype)
        for order in (1.0, 2.0, 3.0, math.inf):
            n = gradclip.norm(tensors, torch.clip_grad_norm(1.0, order))
            assert math.isnan(n) if math.isnan(value) else n == math.inf


@pytest.mark.parametrize("size", [4, LARGE])
@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_keep_their_sign(size: int, dtype: str) -> None:
    for clip in (gradclip.clip, gradclip.clip_):
        for rule in (torch.clip_grad_norm(1.0), keras.clipnorm(1.0), torch.clip_grad_value(1.0)):
            x = paddle.full([size], -0.0, dtype)
            x[0] = 100.0
            got = framework.read(clip(x, rule).grads)
            assert 0 < got[0] < 1.1
            assert np.signbit(got[1:]).all()
            assert not got[1:].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bounds", [(-0.5, 0.25), (-math.inf, 0.25), (0.0, 0.0), (0.1, 0.2), (-1e300, 1e300)], ids=str)
def test_every_element_is_clipped_alike(bounds: tuple[float, float], dtype: str) -> None:
    """The position of an element makes no difference: vector operations take several at a time, the rest go one by one."""
    values = np.array([math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-40, -7.0, 0.3], dtype)
    rule = tensorflow.clip_by_value(*bounds)
    for size in (1, 7, 37, LARGE + 5):
        for shift in range(len(values)):
            array = np.resize(np.roll(values, shift), size)
            with np.errstate(over="ignore"):
                wanted = np.maximum(np.minimum(array, bounds[1]), bounds[0])
            for clip in (gradclip.clip, gradclip.clip_):
                got = clip(paddle.to_tensor(array), rule).grads.numpy()
                assert np.array_equal(got, wanted.astype(dtype), equal_nan=True)
                if bounds[0] < 0 < bounds[1]:
                    assert np.array_equal(np.signbit(got[array == 0]), np.signbit(array[array == 0]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bounds", [(2.0, None), (0.0, -2.0), (3.0, 0.5)])
def test_by_value_an_optimizer_is_given_the_gradient_itself(bounds: tuple[float, float | None], dtype: str) -> None:
    """If no element is clipped, it gets the same object; the compiled loops check that, also for a NaN and the last element."""
    upper, lower = bounds[0], -bounds[0] if bounds[1] is None else bounds[1]
    inside = (upper + lower) / 2
    for size, transposed in ((BLOCK, False), (LARGE, False), (LARGE, True)):
        for spoilt in (None, math.nan, upper + 1, lower - 1):
            x = paddle.full([size // 4, 4], inside, dtype)
            if spoilt is not None:
                x[-1, -1] = spoilt
            x = x.t() if transposed else x
            was = framework.read(x)
            ((_, new),) = gradclip.ClipGradByValue(*bounds)([(paddle.zeros([1]), x)])
            assert (new is x) is (spoilt is None and bool(kernels.KINDS))
            assert np.array_equal(framework.read(x), was, equal_nan=True)
            assert np.array_equal(framework.read(new), np.clip(was, lower, upper), equal_nan=True)
            assert gradclip.clip(x, tensorflow.clip_by_value(lower, upper)).grads is not x


def test_bounds_that_cross() -> None:
    """The lower bound wins, as in the formula."""
    for size in (4, LARGE):
        for clip in (gradclip.clip, gradclip.clip_):
            x = paddle.full([size], 9.0)
            x[0], x[1] = -9.0, math.nan
            got = framework.read(clip(x, tensorflow.clip_by_value(2.0, -2.0)).grads)
            assert math.isnan(got[1])
            assert got[0] == got[2] == got[-1] == 2.0


def test_to_write_one_result_is_no_matter_to_a_derivative_through_another() -> None:
    weight = paddle.ones([4])
    weight.stop_gradient = False
    clipped = gradclip.clip([paddle.full([4], 2.0) for _ in range(12)], torch.clip_grad_value(1.0)).grads
    loss = (weight * clipped[1]).sum()
    clipped[2].add_(paddle.ones([4]))
    loss.backward()
    assert weight.grad.tolist() == [1.0] * 4


@pytest.mark.parametrize("limit", [1.0, 1e30], ids=["clipped", "unclipped"])
@pytest.mark.parametrize("size", [4, LARGE])
def test_new_gradients_have_memory_of_their_own(size: int, limit: float) -> None:
    x = paddle.full([size], 2.0)
    for rule in (torch.clip_grad_norm(limit), keras.clipnorm(limit), torch.clip_grad_value(limit)):
        [new] = gradclip.clip([x], rule).grads
        was = framework.read(new)
        assert new.data_ptr() != x.data_ptr()
        assert new.stop_gradient
        gc.collect()
        paddle.full([size], 7.0)
        assert np.array_equal(framework.read(new), was)
        new.fill_(5.0)
        assert framework.read(x).tolist() == [2.0] * size


@pytest.mark.parametrize("size", [4, LARGE])
def test_an_optimizer_is_given_what_is_not_clipped_itself(size: int) -> None:
    x, y = paddle.full([size], 2.0), paddle.full([size], 2e-9)
    for clip in (gradclip.ClipGradByNorm(1.0), gradclip.ClipGradByNorm(1e30)):
        (_, new), (_, same) = clip([(paddle.zeros([1]), x), (paddle.zeros([1]), y)])
        assert same is y
        assert (new is x) is (clip.clip_norm == 1e30)
        assert framework.read(x).tolist() == [2.0] * size
