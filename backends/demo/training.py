"""The training loop for all frameworks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import gradclip
from gradclip.backends.demo import digits
from gradclip.backends.demo.base import Trainer
from gradclip.conformance.children import Message


def train(trainer: Trainer, task: Message, send: Callable[[Message], None]) -> None:
    """Train once for each rule of the task, and send every step."""
    send({"version": str(importlib.import_module(trainer.name).__version__)})
    training, held_out = digits.load()
    for number, (dialect, function, arguments) in enumerate(task["rules"]):
        rule = getattr(importlib.import_module(f"gradclip.dialects.{dialect}"), function)(**arguments)
        weights = [trainer.tensor(weight) for weight in digits.weights()]
        for batch in digits.batches(training, task["steps"]):
            loss, gradients = trainer.differentiate(weights, batch)
            result = gradclip.clip(gradients, rule)
            weights = [w - digits.RATE * g for w, g in zip(weights, result.grads, strict=True)]
            step = {"loss": float(loss), "norm": one_a_norm(result.norm), "coefficient": one_a_norm(result.coefficient)}
            send({"rule": number, **step})
        score = digits.accuracy(held_out, [trainer.array(weight) for weight in weights])
        send({"rule": number, "accuracy": score})


def one_a_norm(value: Any) -> list[float]:
    """One number for a norm over all gradients, or one for each gradient."""
    return [float(one) for one in value] if isinstance(value, list) else [float(value)]
