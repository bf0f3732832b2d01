"""The training that ``gradclip demo`` shows without a clip diverges, and trains with the limit that ``choose`` recommends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gradclip
from gradclip.backends.demo import digits, story
from gradclip.dialects import torch

STEPS = 150


def train(seed: int, limit: float, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[float]]:
    """Return the norms before the clip, and the losses."""
    monkeypatch.setattr(story, "_SEED", seed)
    monkeypatch.setattr(digits, "_SEED", seed)
    trained, norms, losses = story.weights(), [], []
    with np.errstate(all="ignore"):
        for batch in digits.batches(digits.load()[0], STEPS):
            loss, gradients = story.differentiate(trained, batch)
            result: Any = gradclip.clip(gradients, torch.clip_grad_norm(limit))
            taken = result.grads if limit < math.inf else gradients
            trained = [w - np.float32(story._RATE) * g for w, g in zip(trained, taken, strict=True)]
            norms.append(float(result.norm))
            losses.append(loss)
    return norms, losses


def test_the_demo_trains_with_the_recommended_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    choice: Any = gradclip.choose(train(story._SEED, math.inf, monkeypatch)[0])
    assert choice.record.diverged is not None
    for seed in range(3):
        _, losses = train(seed, choice.recommended.limit, monkeypatch)
        assert math.isfinite(sum(losses))
        assert np.mean(losses[-8:]) < 0.7 * np.mean(losses[:8]), (choice.recommended.limit, losses[:2], losses[-2:])
