"""Finite gradients whose norm is near or beyond the largest float32: the clipped gradients are right on the host."""

from __future__ import annotations

import math

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import ulps

import gradclip
from gradclip.dialects import torch

pytestmark = pytest.mark.accuracy


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("value", [3e38, 4e37])
@pytest.mark.parametrize("count", [1, 64])
def test_a_norm_beyond_the_dtype(backend: Framework, count: int, value: float, order: float) -> None:
    grads = [backend.make(np.full(64 // count, value)) for _ in range(count)]
    exact = float(np.float32(value)) * 64 ** (1 / order)
    result = gradclip.clip(grads, torch.clip_grad_norm(1.0, norm_type=order))
    fits = exact < float(np.finfo(np.float32).max)
    assert ulps(np.float64(backend.read(result.norm)), exact if fits else math.inf, "float32") <= 4
    for x in result.grads:
        assert ulps(backend.read(x), np.full(64 // count, value / exact), "float32") <= 8
