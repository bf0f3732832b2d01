"""Gradients that are views of one memory: the same memory is one gradient, and in place no element is scaled twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import ulps

import gradclip
from gradclip.core.memory import first_overlap, layout
from gradclip.dialects import torch

pytestmark = pytest.mark.needs("mutable")
HALF = torch.clip_grad_norm(2.5)


def view(backend: Framework, x: Any, where: Any) -> Any:
    return x.detach()[where] if hasattr(x, "detach") else x[where]


@pytest.mark.parametrize("size", [2, 5000])
def test_the_same_memory_is_one_gradient(backend: Framework, size: int) -> None:
    values = np.zeros(size)
    values[:2] = 3.0, 4.0
    x = backend.make(values)
    for again in (view(backend, x, slice(None)), x.reshape([1, size]), x.reshape([size, 1])):
        x[...] = backend.make(values)
        assert gradclip.norm([x, again], HALF) == 5.0
        gradclip.clip_([x, again], HALF)
        assert ulps(backend.read(x), values / 2, "float32") <= 16
        x[...] = backend.make(values)
        for new in gradclip.clip([x, again], HALF).grads:
            assert ulps(backend.read(new).reshape(size), values / 2, "float32") <= 16
        assert backend.read(x).tolist() == values.tolist()


@pytest.mark.parametrize("dtypes", [1, 2])
@pytest.mark.parametrize(
    ("one", "other"), [(slice(0, 10), slice(5, 15)), (slice(0, 16, 2), slice(2, 5)), (slice(0, 9), slice(0, 8))]
)
def test_gradients_that_share_elements_are_not_written(backend: Framework, one: slice, other: slice, dtypes: int) -> None:
    x = backend.make(np.ones(20))
    first = backend.make(np.ones(3), "float64") if dtypes == 2 else backend.make(np.ones(3))
    grads = [first, view(backend, x, one), view(backend, x, other)]
    for rule in (torch.clip_grad_norm(0.5), torch.clip_grad_value(0.5), torch.clip_grad_norm(1e9), torch.clip_grad_value(2.0)):
        with pytest.raises(gradclip.core.errors.NotWritableError, match=r"share elements(.|\n)*Received: shape(.|\n)*Hint: "):
            gradclip.clip_(grads, rule)
        assert backend.read(x).tolist() == [1.0] * 20
        assert backend.read(first).tolist() == [1.0] * 3
    new = gradclip.clip(grads, torch.clip_grad_value(0.5)).grads
    assert [set(backend.read(g).tolist()) for g in new] == [{0.5}] * 3


@pytest.mark.parametrize(
    "wheres",
    [
        (slice(0, 10), slice(10, 16)),
        (slice(0, None, 2), slice(1, None, 2)),
        ((slice(None), slice(0, 2)), (slice(None), slice(2, 4))),
        ((slice(0, None, 2), slice(0, 2)), (slice(0, None, 2), slice(2, 4)), slice(1, None, 2)),
    ],
)
def test_disjoint_views_are_written_once(backend: Framework, wheres: tuple[Any, ...]) -> None:
    x = backend.make(np.ones((4, 4)) if isinstance(wheres[0], tuple) else np.ones(16))
    grads = [view(backend, x, where) for where in wheres]
    assert gradclip.clip_(grads, torch.clip_grad_norm(2.0)).norm == 4.0
    assert np.abs(backend.read(x) - 0.5).max() <= 1e-6


def test_overlaps_are_told_as_numpy_tells_them() -> None:
    rng = np.random.default_rng(0)
    x, found = np.zeros((6, 7, 8), np.float32), set()

    def some() -> Any:
        cuts = [slice(*sorted(rng.integers(0, n + 1, 2)), int(rng.integers(1, 4))) for n in x.shape]
        return x[tuple(cuts)][:: rng.choice([-1, 1])].transpose(rng.permutation(3))

    for _ in range(2000):
        pair = [y for y in (some(), some()) if y.size]
        layouts = [layout(y.__array_interface__["data"][0], y.itemsize, y.shape, y.strides) for y in pair]
        want = len(pair) == 2 and np.shares_memory(*pair)
        assert (first_overlap(layouts) is not None) is want
        found.add(want)
    assert found == {False, True}
