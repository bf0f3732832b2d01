"""The host lane of Paddle: its threads, and the gradients that an optimizer is given; tests/core has the rest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
import pytest
from frameworks.base import LARGE
from frameworks.paddle import framework
from oracle import ulps
from rules import KINDS, is_dense, kinds

import gradclip
from gradclip import Rule
from gradclip.backends.host import kernels, threads
from gradclip.backends.host.lane import HostLane
from gradclip.dialects import tensorflow, torch

DTYPES = ("float16", "bfloat16", "float32", "float64")
SHAPES = {
    "few": [(3, 4), (5,), (), (30, 41)],
    "a large one": [(LARGE // 4 + 1, 4), (9,)],
}

pytestmark = pytest.mark.usefixtures("compiled", "soon_large")


def gradients(name: str, dtype: str) -> list[Any]:
    """Return gradients; the last one is transposed, if it is a matrix."""
    rng = np.random.default_rng(0)
    made = [framework.make(rng.standard_normal(shape), dtype) for shape in SHAPES[name]]
    return [*made[:-1], made[-1].t()] if made[-1].ndim == 2 else made


def clipped(grads: list[Any], rule: Rule, in_place: bool) -> tuple[list[Any], Any]:
    result = (gradclip.clip_ if in_place else gradclip.clip)(grads, rule)
    return [framework.read(x) for x in result.grads], result.norm


@pytest.mark.drawn(120)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", kinds(is_dense))
@pytest.mark.parametrize("limit", [0.01, 1e6], ids=["clipped", "not clipped"])
@pytest.mark.parametrize("form", ["in place", "new", "object"])
def test_by_several_threads(form: str, limit: float, name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paddle takes the number of threads from ``OMP_NUM_THREADS``."""
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
            found.append(clipped(grads, KINDS[name](limit), form == "in place")[0])
        assert asked or name != "global" or not kernels.KINDS
        assert {*asked} <= {int(count)}
        asked.clear()
    for one, several in zip(*found, strict=True):
        assert np.array_equal(several, one)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bounds", [(2.0, None), (0.0, -2.0), (3.0, 0.5)])
def test_by_value_an_optimizer_is_given_the_gradient_itself(bounds: tuple[float, float | None], dtype: str) -> None:
    """If no element is clipped, it gets the same object; the compiled loops check that, also for a NaN and the last element."""
    upper, lower = bounds[0], -bounds[0] if bounds[1] is None else bounds[1]
    inside = (upper + lower) / 2
    for size, transposed in ((LARGE // 8, False), (LARGE, False), (LARGE, True)):
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


def test_to_write_one_result_is_no_matter_to_a_derivative_through_another() -> None:
    weight = paddle.ones([4])
    weight.stop_gradient = False
    clipped = gradclip.clip([paddle.full([4], 2.0) for _ in range(12)], torch.clip_grad_value(1.0)).grads
    loss = (weight * clipped[1]).sum()
    clipped[2].add_(paddle.ones([4]))
    loss.backward()
    assert weight.grad.tolist() == [1.0] * 4
    assert all(x.stop_gradient for x in clipped)


@pytest.mark.parametrize("size", [4, LARGE])
def test_an_optimizer_is_given_what_is_not_clipped_itself(size: int) -> None:
    x, y = paddle.full([size], 2.0), paddle.full([size], 2e-9)
    for clip in (gradclip.ClipGradByNorm(1.0), gradclip.ClipGradByNorm(1e30)):
        (_, new), (_, same) = clip([(paddle.zeros([1]), x), (paddle.zeros([1]), y)])
        assert same is y
        assert (new is x) is (clip.clip_norm == 1e30)
        assert framework.read(x).tolist() == [2.0] * size


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_optimizer_is_given_many_that_are_transposed(dtype: str) -> None:
    values = [np.random.default_rng(i).standard_normal((5, 7)) for i in range(10)]
    new = gradclip.ClipGradByNorm(0.5)([(None, framework.make(v.T.copy(), dtype).t()) for v in values])
    for (_, x), given in zip(new, values, strict=True):
        value = framework.read(framework.make(given, dtype))
        assert ulps(framework.read(x), value * 0.5 / np.linalg.norm(value), dtype) <= 4
