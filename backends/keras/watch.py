"""Watches Keras's optimizers for ``gradclip doctor``: ``apply``, on any of its backends, where it is not compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from gradclip.doctor.functional import Functional
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.watch import Request
from gradclip.registry import find

__all__ = ["KerasWatch", "start"]


class KerasWatch(Functional):
    """The watch on the tensors of Keras's backend."""

    framework = "keras"

    def norm(self, x: Any, order: float) -> float:
        x = keras.ops.cast(x.detach(), "float64").cpu().numpy() if hasattr(x, "detach") else keras.ops.convert_to_tensor(x)
        values = np.asarray(x).astype("float64")
        return float(np.linalg.norm(values.ravel(), order)) if values.size else 0.0


def start(recorder: Recorder) -> None:
    """Watch Keras from now on."""
    fallback = KerasWatch(recorder)

    def apply(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
            if recorder.is_quiet or recorder.stepping is not None:
                return original(self, grads, trainable_variables)
            given = recorder.watches.get(keras.backend.backend())
            watch = given if isinstance(given, Functional) else fallback
            grads = list(grads)
            if watch.is_traced() or not all(x is None or _can_read(x) for x in grads):
                watch.unwatched("a compiled training step (run_eagerly=True in compile() shows it)")
                return original(self, grads, trainable_variables)
            variables = list(trainable_variables) if trainable_variables is not None else grads
            pairs = [(grad, _key(x)) for grad, x in zip(grads, variables, strict=True)]
            recorder.names.update({_key(x): str(getattr(x, "path", "")) for x in variables})
            call = lambda: original(self, grads, trainable_variables)  # noqa: E731
            return watch.step(call, type(self).__name__, self, pairs, _own(self))

        return watched

    for kind in keras.optimizers.Optimizer.__mro__:
        recorder.replace(kind, "apply", apply)


def _key(variable: Any) -> int:
    """The identity of a variable; on PyTorch that of its parameter, which torch's functions take."""
    return id(variable.value) if keras.backend.backend() == "torch" and hasattr(variable, "value") else id(variable)


def _can_read(x: Any) -> bool:
    backend = find(x)
    return backend is not None and bool(backend.can_read(x))


def _own(optimizer: Any) -> Request | None:
    """The clip that an optimizer makes by its settings."""
    if optimizer.clipnorm:
        return Request("clipnorm", [], optimizer.clipnorm, is_each=True)
    if optimizer.global_clipnorm:
        return Request("global_clipnorm", [], optimizer.global_clipnorm)
    if optimizer.clipvalue:
        return Request("clipvalue", [], optimizer.clipvalue, math.inf, is_value=True)
    return None
