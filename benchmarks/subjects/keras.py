"""Keras, on the framework of this process: the method by which its optimizers clip, and gradclip's in the same place."""

from __future__ import annotations

from collections.abc import Callable
from importlib import util
from typing import Any

from benchmarks.case import Function, Maker
from benchmarks.subjects.natives import own
from gradclip.natives import Native
from gradclip.natives import keras as natives

__all__ = ["functions", "missing", "versions"]


def missing() -> bool:
    """Whether there is no Keras."""
    return util.find_spec("keras") is None


def versions() -> dict[str, str]:
    """The version of Keras."""
    if missing():
        return {}
    import keras

    return {"keras": keras.__version__}


def functions(modes: tuple[str, ...]) -> list[Function]:
    """The options of an optimizer that clip; none where there is no Keras."""
    if missing():
        return []
    return [
        Function(f"keras.{native.keyword}", kind, _native(native.keyword), _ours(native), modes=modes)
        for native, kind in own(natives.NATIVES)
    ]


def _native(option: str) -> Maker:
    def make(limit: float) -> Callable[[Any], Any]:
        import keras

        optimizer = keras.optimizers.SGD(**{option: limit})
        return lambda grads: optimizer._clip_gradients(grads)

    return make


def _ours(native: Native) -> Maker:
    def make(limit: float) -> Callable[[Any], Any]:
        import keras

        from gradclip.backends.keras import clipped

        optimizer = clipped(keras.optimizers.SGD(), native.rule(limit))
        return lambda grads: optimizer._clip_gradients(grads)

    return make
