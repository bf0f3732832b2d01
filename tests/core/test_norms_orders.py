"""The experiment of docs/choosing.md on every backend: one gradient has a different norm for each order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import norm, ulps

import gradclip
from gradclip.dialects import torch

pytestmark = pytest.mark.accuracy

GRADIENT = np.array([125.0, 75.0, 45.0, 15.0, 5.0])
ORDERS = (1.0, 2.0, 3.0, 4.0, math.inf)


@pytest.mark.parametrize("order", ORDERS)
def test_the_norm_and_the_clip_of_each_order(backend: Framework, order: float) -> None:
    result = gradclip.clip(backend.make(GRADIENT), torch.clip_grad_norm(max_norm=100.0, norm_type=order))
    exact = float(norm(GRADIENT, order))
    assert ulps(float(result.norm), exact, "float32") <= 4
    np.testing.assert_allclose(backend.read(result.grads), GRADIENT * 100.0 / exact, rtol=1e-6)


def test_it_does_not_grow_with_the_order(backend: Framework) -> None:
    found = [float(gradclip.norm(backend.make(GRADIENT), torch.clip_grad_norm(1.0, order))) for order in ORDERS]
    assert found == sorted(found, reverse=True)
    assert found[1] <= found[0] <= math.sqrt(len(GRADIENT)) * found[1]
    assert found[-1] == 125.0


def test_the_smallest_of_several_gradients(backend: Framework) -> None:
    given = [backend.make([5.0, -3.0]), backend.make([7.0, 4.0])]
    assert float(gradclip.norm(given, torch.clip_grad_norm(1.0, -math.inf))) == 3.0
