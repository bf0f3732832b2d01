"""The clips of Keras's optimizers, for the steps that are compared: eager ones, on TensorFlow and PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

import gradclip
from gradclip.dialects import keras as dialect
from gradclip.natives import BY_NAME, Native
from replaced.compare import Table, Untraced

if TYPE_CHECKING:
    from gradclip import Rule

__all__ = ["Kit"]

_RULES: dict[str, Callable[[float], Rule]] = {
    "clipnorm": dialect.clipnorm,
    "global_clipnorm": dialect.global_clipnorm,
    "clipvalue": dialect.clipvalue,
}


@dataclass
class Kit(Untraced):
    """Copies and reads tensors of Keras's backend."""

    table: Table

    @property
    def methods(self) -> Iterator[tuple[Native, type, str, Callable[[Any], Any]]]:
        """What an optimizer's clip is replaced in, for each of its arguments; ``gradclip.clipped`` has its own."""
        owner = next(one for one in keras.optimizers.Optimizer.__mro__ if "_clip_gradients" in vars(one))
        for name in _RULES:
            native = BY_NAME[f"keras.optimizers.Optimizer({name}=)"]
            yield native, owner, "_clip_gradients", functools.partial(_clip, name)

    def is_tracing(self) -> bool:
        return bool(keras.backend.backend() == "jax")  # without float64

    def listed(self, given: Any, native: Native) -> list[Any]:
        return [x for x in given if x is not None]

    def grads(self, tensors: list[Any], native: Native) -> list[Any] | None:
        """The gradients; None if one is sparse, or has no numbers, as in a compiled step."""
        try:
            for x in tensors:
                keras.ops.convert_to_numpy(x)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError):
            return None
        return (
            None
            if any(hasattr(x, "indices") and hasattr(x, "values") and hasattr(x, "dense_shape") for x in tensors)
            else tensors
        )

    def copies(
        self, grads: list[Any], rest: Sequence[Any], options: Mapping[str, Any], *, is_wide: bool
    ) -> tuple[list[Any], list[Any], dict[str, Any]]:
        return [keras.ops.cast(x, "float64") if is_wide else keras.ops.copy(x) for x in grads], [], {}

    def results(self, native: Native, call: Callable[..., Any], grads: list[Any], *_: Any) -> tuple[Any, Sequence[Any]]:
        return self.outcome(native, call(grads), grads)

    def outcome(self, native: Native, made: Any, tensors: list[Any]) -> tuple[None, Sequence[Any]]:
        return None, [x for x in made if x is not None]

    def read(self, x: Any) -> tuple[np.ndarray, str]:
        return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(x, "float64"))), keras.backend.standardize_dtype(x.dtype)


def _clip(name: str, optimizer: Any) -> Any:
    """gradclip's clip for an optimizer with this argument; None for one without."""
    limit = getattr(optimizer, name)
    if not limit or limit <= 0:
        return None
    rule = _RULES[name](limit)
    return lambda grads: gradclip.clip(list(grads), rule).grads
