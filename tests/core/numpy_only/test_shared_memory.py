"""Arrays over memory that is not NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

import gradclip
from gradclip.dialects import torch


def test_the_same_foreign_memory_is_one_gradient() -> None:
    memory = bytearray(np.full(16, 1.0, np.float32).tobytes())
    x, again = (np.frombuffer(memory, np.float32) for _ in range(2))
    assert gradclip.norm([x, again], torch.clip_grad_norm(1.0)) == 4.0
    gradclip.clip_([x, again], torch.clip_grad_norm(2.0))
    assert np.abs(x - 0.5).max() < 1e-6
    gradclip.clip_([x, again], torch.clip_grad_value(0.25))
    assert x.tolist() == [0.25] * 16


@pytest.mark.parametrize("limit", [0.5, 100.0])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_foreign_memory_that_overlaps_is_not_written(dtype: str, limit: float) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    memory = bytearray(np.ones(16, kind).tobytes())
    x, y = np.frombuffer(memory, kind, 10), np.frombuffer(memory, kind, 8, 8 * np.dtype(kind).itemsize)
    with pytest.raises(gradclip.core.errors.NotWritableError, match="share elements"):
        gradclip.clip_([x, np.ones(2), y], torch.clip_grad_norm(limit))
    assert x.tolist() == [1.0] * 10
    assert y.tolist() == [1.0] * 8
    gradclip.clip_([x[:8], y], torch.clip_grad_norm(2.0))
    assert np.abs(y.astype(np.float64) - 0.5).max() < 1e-2
