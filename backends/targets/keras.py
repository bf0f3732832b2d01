"""Keras's own clips, on the arrays of the framework that it runs on, which ``KERAS_BACKEND`` names."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import keras

from gradclip.conformance.adapted import features_of, natives_of, scoped
from gradclip.conformance.target import ComposedTarget

__all__ = ["arrays", "native"]

_ON = keras.backend.backend()
arrays: Any = importlib.import_module(f"gradclip.backends.targets.{_ON}").arrays


def native() -> ComposedTarget:
    """The clip of an optimizer made with ``clipnorm=``, ``global_clipnorm=`` or ``clipvalue=``."""
    unknown = {"int32", "int64", "bool", "complex64", "complex128", "iterator", "array limit"}
    _, claims = natives_of("keras", features_of(arrays) - unknown)
    runs = {operation: scoped(arrays, _clip) for operation in claims}
    versions = {"keras": keras.__version__, **arrays.versions}
    return ComposedTarget(f"keras {keras.__version__} on {_ON}", arrays, claims, runs, versions)


_OPTIMIZER = keras.optimizers.SGD()  # made once, as in training: an optimizer cannot be made while tracing


def _clip(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[list[Any], Any]:
    for name in ("clipnorm", "global_clipnorm", "clipvalue"):
        setattr(_OPTIMIZER, name, arguments.get(name))
    return _OPTIMIZER._clip_gradients(list(gradients)), None
