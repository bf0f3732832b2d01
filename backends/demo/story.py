"""Why clip: a recurrent network that reads each digit row by row, trained without a clip and with each, in NumPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

import gradclip
from gradclip.backends.demo import digits
from gradclip.backends.demo.training import one_a_norm
from gradclip.conformance.children import Message

_HIDDEN, _ROWS, _COLUMNS, _DIGITS = 32, 8, 8, 10
_RATE = 1.0  # far too high without a clip: a step makes the hidden state grow, and each row multiplies it
_SEED = 20260


def weights() -> list[np.ndarray]:
    """The first weights: from a row, from the hidden state to itself (a rotation), a bias; from it to the digits, a bias."""
    rng = np.random.default_rng(_SEED)
    from_row = rng.standard_normal((_COLUMNS, _HIDDEN)) * np.sqrt(2 / _COLUMNS)
    to_itself = np.linalg.qr(rng.standard_normal((_HIDDEN, _HIDDEN)))[0]
    to_digits = rng.standard_normal((_HIDDEN, _DIGITS)) * np.sqrt(2 / _HIDDEN)
    found = [from_row, to_itself, np.zeros(_HIDDEN), to_digits, np.zeros(_DIGITS)]
    return [weight.astype(np.float32) for weight in found]


def differentiate(given: list[np.ndarray], batch: digits.Digits) -> tuple[float, list[np.ndarray]]:
    """The loss of a batch, and its gradients by backpropagation through time."""
    from_row, to_itself, _, to_digits, _ = given
    rows, states, scores = _forward(given, batch.images)
    scores = scores - scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    loss = -np.sum(logs * batch.one_hot) / len(batch.labels)

    by_scores = (np.exp(logs) - batch.one_hot) / len(batch.labels)
    by_state = by_scores @ to_digits.T
    by_row, by_itself, by_bias = np.zeros_like(from_row), np.zeros_like(to_itself), np.zeros(_HIDDEN, np.float32)
    for k in reversed(range(_ROWS)):
        by_state = by_state * (states[k + 1] > 0)
        by_row = by_row + rows[:, k].T @ by_state
        by_itself = by_itself + states[k].T @ by_state
        by_bias = by_bias + by_state.sum(axis=0)
        by_state = by_state @ to_itself.T
    return float(loss), [by_row, by_itself, by_bias, states[-1].T @ by_scores, by_scores.sum(axis=0)]


def _forward(given: list[np.ndarray], images: np.ndarray) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """The rows of the images, the hidden state before the first and after each, and the scores of the digits."""
    from_row, to_itself, bias, to_digits, last_bias = given
    rows = images.reshape(len(images), _ROWS, _COLUMNS)
    states = [np.zeros((len(images), _HIDDEN), np.float32)]
    for k in range(_ROWS):
        states.append(np.maximum(rows[:, k] @ from_row + states[-1] @ to_itself + bias, 0))
    return rows, states, states[-1] @ to_digits + last_bias


def train(task: Message, send: Callable[[Message], None]) -> None:
    """Train without a clip, and once for each rule of the task; send every step."""
    training, held_out = digits.load()
    for number, call in enumerate([None, *task["rules"]]):
        rule = None if call is None else _rule(*call)
        trained = weights()
        with np.errstate(all="ignore"):  # the training without a clip overflows
            for batch in digits.batches(training, task["steps"]):
                loss, gradients = differentiate(trained, batch)
                found = gradclip.clip(gradients, rule or _MEASURED)
                trained = [w - np.float32(_RATE) * g for w, g in zip(trained, found.grads if rule else gradients, strict=True)]
                send({"training": number, "loss": loss, "norm": one_a_norm(found.norm)})
            scores = _forward(trained, held_out.images)[2]
        send({"training": number, "accuracy": float(np.mean(np.argmax(scores, axis=1) == held_out.labels))})


_MEASURED = gradclip.dialects.torch.clip_grad_norm(float("inf"))


def _rule(dialect: str, function: str, arguments: dict[str, Any]) -> gradclip.Rule:
    made: gradclip.Rule = getattr(importlib.import_module(f"gradclip.dialects.{dialect}"), function)(**arguments)
    return made
