"""Shared code of the runs with exploding steps: batches of handwritten digits, some far too large or not finite."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_digits

import gradclip
from gradclip import limits
from gradclip.core.rule import Rule

SPOILT = {37: 300.0, 51: math.nan}  #: step modulo 100 -> the factor by which its images are multiplied


def following(rule: Rule) -> Rule:
    """A rule whose limit follows the run; a step that is not finite becomes zeros without an error."""
    adaptive = gradclip.Adaptive(limits.quantile(0.9, warmup=50, at_first=2.0))
    return dataclasses.replace(rule, limit=adaptive, if_nonfinite="zero")


def batches(steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches of 64 images (64 pixels each, between 0 and 1) and their digits; two in a hundred batches are spoilt."""
    digits, rng = load_digits(), np.random.default_rng(0)
    images, labels = (digits.data / 16).astype("float32"), digits.target.astype("int64")
    for step in range(steps):
        chosen = rng.integers(len(labels), size=64)
        yield images[chosen] * np.float32(SPOILT.get(step % 100, 1.0)), labels[chosen]


def weights() -> list[np.ndarray]:
    """The weights and biases of two layers."""
    rng = np.random.default_rng(0)
    shapes = ((64, 32), (32,), (32, 10), (10,))
    return [(rng.normal(size=shape) / 8 * (len(shape) > 1)).astype("float32") for shape in shapes]


def learnt(losses: list[float]) -> tuple[float, float]:
    """The first loss and the mean of the last ones, without the spoilt batches."""
    usual = [loss for step, loss in enumerate(losses) if step % 100 not in SPOILT]
    return usual[0], float(np.mean(usual[1:][-50:]))


def shown(monitor: gradclip.Monitor, losses: list[float], picture: str | None) -> None:
    """Print the statistics of the monitor and draw them."""
    print(monitor)
    first, last = learnt(losses)
    print(f"loss {first:.3f} at first, {last:.3f} in the end")
    if picture:
        monitor.plot(picture)
