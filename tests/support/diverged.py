"""Trainings that diverge without a clip: does each train with the limit that ``gradclip.choose`` recommends?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gradclip

__all__ = ["STEPS", "Training", "trains_with_the_recommended_limit"]

STEPS, SEEDS = 100, 3
Training = Callable[[int, float], tuple[Sequence[float], Sequence[float]]]  #: seed, limit -> norms before the clip, losses


def trains_with_the_recommended_limit(train: Training, most: float = 0.9) -> None:
    """The last losses are at most this much of the first, for each seed, with the limit from the run of the first seed."""
    norms, _ = train(0, math.inf)
    choice: Any = gradclip.choose(norms)
    assert choice.record.diverged is not None, norms[-1]
    for seed in range(SEEDS):
        _, losses = train(seed, choice.recommended.limit)
        assert math.isfinite(math.fsum(losses))
        assert _mean(losses[-8:]) < most * _mean(losses[:8]), (choice.recommended.limit, losses[:2], losses[-2:])


def _mean(losses: Sequence[float]) -> float:
    return math.fsum(losses) / len(losses)
