"""Watches TensorFlow's clips and tapes for ``gradclip doctor``; the steps are Keras's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from gradclip.backends.tensorflow import versions
from gradclip.doctor.functional import Functional
from gradclip.doctor.places import SOURCES, place
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.request import Request
from gradclip.doctor.seen import norm_of
from gradclip.natives.model import clips_of
from gradclip.natives.tensorflow import NATIVES

__all__ = ["TensorFlowWatch", "start"]


class TensorFlowWatch(Functional):
    """The watch on TensorFlow's tensors."""

    framework = "tensorflow"
    clips = clips_of(NATIVES)

    def norm(self, x: Any, order: float) -> float:
        return norm_of(np.asarray(tf.cast(tf.convert_to_tensor(x), tf.float64)), order)

    def has_equal_rows(self, x: Any) -> bool:
        return isinstance(x, tf.IndexedSlices) and np.unique(x.indices).size < np.size(x.indices)

    def is_traced(self) -> bool:
        return not tf.executing_eagerly()

    def is_off(self) -> bool:
        return self.recorder.is_quiet or self.is_traced()

    def gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A tape's method that also tells of the gradients it returns."""

        def watched(tape: Any, target: Any, sources: Any, *rest: Any, **options: Any) -> Any:
            result = original(tape, target, sources, *rest, **options)
            if not self.is_off():
                pairs = zip(tf.nest.flatten(result), tf.nest.flatten(sources), strict=True)
                found = [(grad, x) for grad, x in pairs if grad is not None and hasattr(x, "assign")]  # others are not trained
                self.recorder.names.update({key_of(x): str(getattr(x, "path", "") or x.name) for _, x in found})
                self.backward([(grad, key_of(x)) for grad, x in found])
                self.weights([(x, key_of(x)) for _, x in found])
            return result

        return watched


def key_of(variable: Any) -> int:
    """The identity of a variable, also of a Keras variable around it."""
    inner = getattr(variable, "value", None)
    return id(variable if inner is None or callable(inner) else inner)


def start(recorder: Recorder) -> None:
    """Watch TensorFlow from now on."""
    watch = TensorFlowWatch(recorder)
    recorder.watches["tensorflow"] = watch

    def over_all(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_by_global_norm(t_list: Any, clip_norm: Any, *rest: Any, **options: Any) -> Any:
            if watch.is_off():
                return original(t_list, clip_norm, *rest, **options)
            norm = rest[0] if rest else options.get("use_norm")
            request = Request("clip_by_global_norm", list(t_list), clip_norm, norm=norm)
            call = lambda: _Listed(original(t_list, clip_norm, *rest, **options))  # noqa: E731
            return watch.clip(call, request, lambda result: [x for x in result.pair[0] if x is not None]).pair

        return clip_by_global_norm

    def each(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_by_norm(t: Any, clip_norm: Any, *rest: Any, **options: Any) -> Any:
            if watch.is_off():
                return original(t, clip_norm, *rest, **options)
            request = Request("clip_by_norm", [t], clip_norm, is_each=True)
            return watch.clip(lambda: original(t, clip_norm, *rest, **options), request, lambda result: [result])

        return clip_by_norm

    def by_value(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, *rest: Any, **options: Any) -> Any:
            if watch.is_off():
                return original(t, clip_value_min, clip_value_max, *rest, **options)
            request = Request("clip_by_value", [t], clip_value_max, math.inf, is_value=True)
            call = lambda: original(t, clip_value_min, clip_value_max, *rest, **options)  # noqa: E731
            return watch.clip(call, request, lambda result: [result])

        return clip_by_value

    SOURCES.append(versions.source)
    recorder.undo(lambda: SOURCES.remove(versions.source))
    if recorder.to_run_eagerly:
        _run_eagerly(recorder)
    recorder.replace(tf, "clip_by_global_norm", over_all)
    recorder.replace(tf, "clip_by_norm", each)
    recorder.replace(tf, "clip_by_value", by_value)
    recorder.replace(tf.GradientTape, "gradient", watch.gradient)


def _run_eagerly(recorder: Recorder) -> None:
    def function(original: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **options: Any) -> Any:
            if not recorder.is_quiet:
                recorder.compiles("tf.function", place("tensorflow"))
            return original(*args, **options)

        return made

    before = tf.config.functions_run_eagerly()
    warnings.filterwarnings("ignore", "Even though the `tf.config", UserWarning)  # that it leaves tf.data alone
    tf.config.run_functions_eagerly(True)
    recorder.run_eagerly(lambda: tf.config.run_functions_eagerly(before))
    recorder.replace(tf, "function", function)


class _Listed:
    """The result of ``clip_by_global_norm``, with its norm by name."""

    def __init__(self, pair: Any) -> None:
        self.pair, self.norm = pair, pair[1]
