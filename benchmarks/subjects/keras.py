"""Keras, on the framework of this process: the method by which its optimizers clip, and gradclip's in the same place."""

from __future__ import annotations

from collections.abc import Callable
from importlib import util
from typing import Any

from benchmarks.case import Function, Kind, Maker
from gradclip.dialects import keras as dialect

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
    """The three options of an optimizer; none where there is no Keras."""
    if missing():
        return []
    kinds = {"clipnorm": Kind.EACH, "global_clipnorm": Kind.GLOBAL, "clipvalue": Kind.VALUE}
    return [Function(f"keras.{option}", kind, _native(option), _ours(option), modes=modes) for option, kind in kinds.items()]


def _native(option: str) -> Maker:
    def make(limit: float) -> Callable[[Any], Any]:
        import keras

        optimizer = keras.optimizers.SGD(**{option: limit})
        return lambda grads: optimizer._clip_gradients(grads)

    return make


def _ours(option: str) -> Maker:
    def make(limit: float) -> Callable[[Any], Any]:
        import keras

        from gradclip.backends.keras import clipped

        optimizer = clipped(keras.optimizers.SGD(), getattr(dialect, option)(limit))
        return lambda grads: optimizer._clip_gradients(grads)

    return make
