"""What the runs with exploding steps share: handwritten digits, of which some batches are far too large, or not finite."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_digits

import gradclip
from gradclip import limits
from gradclip.rule import Rule

SPOILT = {37: 300.0, 51: math.nan}  #: of a hundred steps these are as many times as large


def following(rule: Rule) -> Rule:
    """A rule whose limit follows the run; a step that is not finite becomes zeros, unseen."""
    adaptive = gradclip.Adaptive(limits.quantile(0.9, warmup=50, at_first=2.0))
    return dataclasses.replace(rule, limit=adaptive, if_nonfinite="zero")


def batches(steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """64 images of 64 pixels between 0 and 1, and their digits; two in a hundred are spoilt on purpose."""
    digits, rng = load_digits(), np.random.default_rng(0)
    images, labels = (digits.data / 16).astype("float32"), digits.target.astype("int64")
    for step in range(steps):
        chosen = rng.integers(len(labels), size=64)
        yield images[chosen] * np.float32(SPOILT.get(step % 100, 1.0)), labels[chosen]


def weights() -> list[np.ndarray]:
    """Of two layers."""
    rng = np.random.default_rng(0)
    shapes = ((64, 32), (32,), (32, 10), (10,))
    return [(rng.normal(size=shape) / 8 * (len(shape) > 1)).astype("float32") for shape in shapes]


def learnt(losses: list[float]) -> tuple[float, float]:
    """The first loss and the last ones in the mean, of the batches that are not spoilt."""
    usual = [loss for step, loss in enumerate(losses) if step % 100 not in SPOILT]
    return usual[0], float(np.mean(usual[1:][-50:]))


def shown(monitor: gradclip.Monitor, losses: list[float], picture: str | None) -> None:
    """Print what was seen, and draw it."""
    print(monitor)
    first, last = learnt(losses)
    print(f"loss {first:.3f} at first, {last:.3f} in the end")
    if picture:
        monitor.plot(picture)
