"""The training loop for all frameworks, and the class that a framework supplies for it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

import gradclip
from gradclip.backends.demo import digits
from gradclip.commands.children import Message

Tensor = Any
Function = Callable[[Tensor], Tensor]


class Trainer:
    """One framework's derivatives and steps; this class clips nothing."""

    name = ""

    def tensor(self, array: np.ndarray) -> Tensor:
        """The framework's own tensor of these values."""
        raise NotImplementedError

    def weight(self, array: np.ndarray) -> Tensor:
        """A tensor with a gradient."""
        return self.tensor(array)

    def array(self, tensor: Tensor) -> np.ndarray:
        """A tensor's values."""
        return np.asarray(tensor)

    def differentiate(self, weights: list[Tensor], batch: digits.Digits) -> tuple[Tensor, list[Tensor]]:
        """The loss of a batch, and its gradients by the framework's own autograd."""
        raise NotImplementedError

    def descend(self, weights: list[Tensor], gradients: list[Tensor], rate: float) -> list[Tensor]:
        """The weights after a step of gradient descent."""
        raise NotImplementedError

    def devices(self) -> list[str]:
        """The devices that the framework sees on this machine."""
        return ["cpu"]

    def traces(self) -> dict[str, Callable[[Function, Tensor], Tensor]]:
        """The framework's ways to trace, by name: each calls a function, traced, on a tensor."""
        return {}


def train(trainer: Trainer, task: Message, send: Callable[[Message], None]) -> None:
    """Train once for each rule of the task, and send every step."""
    send({"version": str(importlib.import_module(trainer.name).__version__)})
    training, held_out = digits.load()
    for number, (dialect, function, arguments) in enumerate(task["rules"]):
        rule = getattr(importlib.import_module(f"gradclip.dialects.{dialect}"), function)(**arguments)
        weights = [trainer.weight(weight) for weight in digits.weights()]
        for batch in digits.batches(training, task["steps"]):
            loss, gradients = trainer.differentiate(weights, batch)
            result = gradclip.clip(gradients, rule)
            weights = trainer.descend(weights, result.grads, digits.RATE)
            step = {"loss": float(loss), "norm": one_a_norm(result.norm), "coefficient": one_a_norm(result.coefficient)}
            send({"rule": number, **step})
        score = digits.accuracy(held_out, [trainer.array(weight) for weight in weights])
        send({"rule": number, "accuracy": score})


def one_a_norm(value: Any) -> list[float]:
    """One number for a norm over all gradients, or one for each gradient."""
    return [float(one) for one in value] if isinstance(value, list) else [float(value)]
