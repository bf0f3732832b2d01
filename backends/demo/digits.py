"""The shared data: the UCI handwritten digits, the first weights, the batches. NumPy only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (64, 32, 10)  #: 8 x 8 pixels, hidden units, digits
RATE = 0.5
_BATCH = 64
_TRAIN = 1500  # of 1797 images; the others are the test images
_SEED = 20260


@dataclass(frozen=True, slots=True)
class Digits:
    """Images as rows of float32 between 0 and 1; labels as int64, and as rows of ten float32, one of them 1."""

    images: np.ndarray
    labels: np.ndarray

    @property
    def one_hot(self) -> np.ndarray:
        return np.asarray(np.eye(SIZES[-1])[self.labels], np.float32)


def load() -> tuple[Digits, Digits]:
    """The training digits and the test digits, shuffled once."""
    package = find_spec("sklearn")
    assert package is not None, "the command says what to install"
    assert package.origin is not None
    # load_digits reads this file too; the import of scikit-learn would take longer than the trainings
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    images, labels = rows[:, :-1], rows[:, -1]
    order = np.random.default_rng(_SEED).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    return Digits(images[:_TRAIN], labels[:_TRAIN]), Digits(images[_TRAIN:], labels[_TRAIN:])


def weights() -> list[np.ndarray]:
    """The first weights: a matrix and a bias a layer, float32, the same for every framework."""
    rng = np.random.default_rng(_SEED)
    first = []
    for inputs, outputs in itertools.pairwise(SIZES):
        first.append((rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)).astype(np.float32))
        first.append(np.zeros(outputs, np.float32))
    return first


def batches(digits: Digits, steps: int) -> Iterator[Digits]:
    """The batches, the same and in the same order for every framework."""
    rng = np.random.default_rng(_SEED)
    for _ in range(steps):
        chosen = rng.choice(len(digits.labels), _BATCH, replace=False)
        yield Digits(digits.images[chosen], digits.labels[chosen])


def accuracy(digits: Digits, trained: list[Any]) -> float:
    """The share of images that trained weights recognise."""
    first, first_bias, second, second_bias = trained
    scores = np.tanh(digits.images @ first + first_bias) @ second + second_bias
    return float(np.mean(np.argmax(scores, axis=1) == digits.labels))
