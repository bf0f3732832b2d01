"""Watches Keras's optimizers for ``gradclip doctor``: ``apply``, on any of its backends, where it is not compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from gradclip.backends.keras import versions
from gradclip.core.registry import find
from gradclip.doctor.by_hand import ByHand
from gradclip.doctor.functional import Functional
from gradclip.doctor.places import place
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.request import Request
from gradclip.doctor.seen import norm_of

__all__ = ["KerasWatch", "start"]


class KerasWatch(Functional):
    """The watch on the tensors of Keras's backend."""

    framework = "keras"

    def norm(self, x: Any, order: float) -> float:
        x = keras.ops.cast(x.detach(), "float64").cpu().numpy() if hasattr(x, "detach") else keras.ops.convert_to_tensor(x)
        return norm_of(np.asarray(x).astype("float64"), order)


def start(recorder: Recorder) -> None:
    """Watch Keras from now on."""
    fallback, limits = KerasWatch(recorder), _Limits()

    def apply(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
            if recorder.is_quiet or recorder.stepping is not None:
                return original(self, grads, trainable_variables)
            given = recorder.watches.get(keras.backend.backend())
            watch = given if isinstance(given, Functional) else fallback
            if isinstance(given, ByHand):
                given.has_optimizer = True  # PyTorch's watch would take the step for one by hand
            grads = list(grads)
            if watch.is_traced() or not all(x is None or _can_read(x) for x in grads):
                watch.unwatched("a compiled training step (without --compiled it runs eagerly)")
                return original(self, grads, trainable_variables)
            variables = versions.variables_of(self, grads) if trainable_variables is None else list(trainable_variables)
            pairs = [(grad, _key(x)) for grad, x in zip(grads, variables, strict=True)]
            recorder.names.update({_key(x): str(getattr(x, "path", "")) for x in variables})
            call = lambda: original(self, grads, trainable_variables)  # noqa: E731
            if isinstance(given, ByHand):
                call = _then_left(given, call, pairs)
            if isinstance(self, keras.optimizers.LossScaleOptimizer):
                inner = self.inner_optimizer
                return watch.unscale(call, type(inner).__name__, inner, pairs)
            own = _own(self)
            if own is not None:
                own.unread = limits.unread(self, own)
            return watch.step(call, type(self).__name__, self, pairs, own)

        return watched

    def scale_loss(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, loss: Any) -> Any:
            watch = recorder.watches.get(keras.backend.backend())
            if isinstance(watch, Functional) and not (recorder.is_quiet or watch.is_traced()):
                watch.here.scale = float(self.dynamic_scale if self.built else self.initial_scale)
            return original(self, loss)

        return watched

    if recorder.to_run_eagerly:
        _run_eagerly(recorder, limits)
    recorder.replace(keras.optimizers.LossScaleOptimizer, "scale_loss", scale_loss)
    for kind in (keras.optimizers.LossScaleOptimizer, *keras.optimizers.Optimizer.__mro__):
        recorder.replace(kind, "apply", apply)


def _then_left(watch: ByHand, call: Callable[[], Any], pairs: list[tuple[Any, int]]) -> Callable[[], Any]:
    """A step on PyTorch's tensors: the gradients that it took stay, and the next pass may add to them."""

    def stepped() -> Any:
        result = call()
        known = watch.known
        watch.take_gradients(
            frozenset(key for grad, key in pairs if key in known and grad is watch.grad(known[key]) is not None)
        )
        return result

    return stepped


class _Limits:
    """The limits of optimizers whose step Keras compiles: it goes on with the first one."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[Any, Request | None]] = {}  # by the optimizer, which is kept alive

    def compiles(self, model: Any) -> None:
        """Note that a model's step will be compiled, which reads the limit anew."""
        if keras.backend.backend() != "torch" and getattr(model, "train_function", None) is None:
            self._first[id(model.optimizer)] = model.optimizer, None

    def unread(self, optimizer: Any, own: Request) -> str:
        """Why nothing reads a limit; empty if the step does."""
        if id(optimizer) not in self._first:
            return ""
        first = self._first[id(optimizer)][1] or own
        self._first[id(optimizer)] = optimizer, first
        if (first.name, first.limit) == (own.name, own.limit):
            return ""
        return (
            f"Keras has compiled the step with `{first.name}={first.limit:g}`, and it stays so: "
            f"`{own.name}={own.limit:g}` counts after another `compile()` only."
        )


def _run_eagerly(recorder: Recorder, limits: _Limits) -> None:
    """``fit`` and its like run their steps eagerly, as with ``run_eagerly=True``."""
    kind = next(x for x in keras.Model.__mro__ if isinstance(vars(x).get("run_eagerly"), property))
    setting: property = vars(kind)["run_eagerly"]

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def run_eagerly(self: Any) -> Any:
            if not original(self):
                recorder.compiles("Keras's training step", place("keras"))
                limits.compiles(self)
            return True

        return run_eagerly

    assert setting.fget is not None
    eager = property(recorder.guard.around(setting.fget, make, is_method=True), setting.fset, setting.fdel, setting.__doc__)
    kind.run_eagerly = eager
    recorder.undo(lambda: setattr(kind, "run_eagerly", setting))


def _key(variable: Any) -> int:
    """The identity of a variable: that of the framework's own, which its functions take. JAX has none."""
    inner = None if keras.backend.backend() == "jax" else getattr(variable, "value", None)
    return id(variable if inner is None or callable(inner) else inner)


def _can_read(x: Any) -> bool:
    backend = find(x)
    return backend is not None and bool(backend.can_read(x))


def _own(optimizer: Any) -> Request | None:
    """The clip that an optimizer makes by its settings."""
    if optimizer.clipnorm:
        request = Request("clipnorm", [], optimizer.clipnorm, is_each=True)
    elif optimizer.global_clipnorm:
        request = Request("global_clipnorm", [], optimizer.global_clipnorm)
    elif optimizer.clipvalue:
        request = Request("clipvalue", [], optimizer.clipvalue, math.inf, is_value=True)
    else:
        return None
    request.is_partial = bool(optimizer.gradient_accumulation_steps)  # it clips the mean of several steps
    return request
