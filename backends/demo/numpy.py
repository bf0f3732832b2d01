"""The classifier in NumPy: the derivative written out by hand."""

from __future__ import annotations

import numpy as np

from gradclip.backends.demo.base import Trainer
from gradclip.backends.demo.digits import Digits


class NumpyTrainer(Trainer):
    name = "numpy"

    def tensor(self, array: np.ndarray) -> np.ndarray:
        return array

    def differentiate(self, weights: list[np.ndarray], batch: Digits) -> tuple[float, list[np.ndarray]]:
        first, first_bias, second, second_bias = weights
        hidden = np.tanh(batch.images @ first + first_bias)
        scores = hidden @ second + second_bias
        scores = scores - scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        loss = -np.sum(logs * batch.one_hot) / len(batch.labels)

        by_scores = (np.exp(logs) - batch.one_hot) / len(batch.labels)
        by_hidden = (by_scores @ second.T) * (1 - hidden**2)
        gradients = [batch.images.T @ by_hidden, by_hidden.sum(axis=0), hidden.T @ by_scores, by_scores.sum(axis=0)]
        return float(loss), gradients


trainer = NumpyTrainer()
