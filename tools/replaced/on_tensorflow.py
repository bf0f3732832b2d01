"""TensorFlow's tensors, for the calls that are compared: also in a graph, whose numbers come out by a callback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradclip.natives import Applied, Native
from replaced.compare import Table, outcome

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Kit"]


@dataclass
class Kit:
    """Copies and reads tensors."""

    table: Table

    def is_tracing(self) -> bool:
        return not tf.executing_eagerly()

    def traced(self, native: Native, functions: Any, given: Any, rest: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """What gradclip's function adds to a graph, after a callback that compares it."""
        grads = self.grads(self.listed(given, native), native)
        if grads is None:
            self.table.skip(native.names[0])
            return functions[0](given, *rest, **options)
        with self.table.inside():
            want, made = (function(given, *rest, **options) for function in functions)
        seen = (grads, list(rest), dict(options), *(self.outcome(native, one, []) for one in (want, made)))
        leaves = tf.nest.flatten(seen)
        places = [i for i, x in enumerate(leaves) if tf.is_tensor(x)]

        def note(*arrays: Any) -> None:
            values = {**dict(enumerate(leaves)), **dict(zip(places, arrays, strict=True))}
            given, rest, options, want, got = tf.nest.pack_sequence_as(seen, [values[i] for i in range(len(leaves))])
            with self.table.inside():
                wide = self.copies(given, rest, options, is_wide=True)
                exact = outcome(functools.partial(self.results, native, functions[0], *wide), self.read)
                got, want = (outcome(functools.partial(tuple, one), self.read) for one in (got, want))
                self.table.note(native.names[0], got, want, exact, f"{rest} {options}")

        with tf.control_dependencies([tf.numpy_function(note, [leaves[i] for i in places], [])]):
            return tf.nest.map_structure(lambda x: tf.identity(x) if tf.is_tensor(x) else x, made)

    def listed(self, given: Any, native: Native) -> list[Any]:
        return [given] if native.applied is Applied.TENSOR else list(given)

    def grads(self, tensors: list[Any], native: Native) -> list[Any] | None:
        """The gradients; None if one is sparse, has no floating dtype, or is a weight of Keras, which gradclip refuses."""
        found = [x for x in tensors if x is not None]
        if any(isinstance(x, tf.IndexedSlices) or _is_weight(x) for x in found):
            return None
        found = [tf.convert_to_tensor(x) for x in found]
        return found if all(x.dtype.is_floating for x in found) else None

    def copies(
        self, grads: list[Any], rest: Sequence[Any], options: Mapping[str, Any], *, is_wide: bool
    ) -> tuple[list[Any], list[Any], dict[str, Any]]:
        """The arguments, in float64 if wide; no native writes into them."""

        def copied(x: Any) -> Any:
            is_floating = is_wide and hasattr(x, "dtype") and tf.as_dtype(x.dtype).is_floating
            return tf.cast(x, tf.float64) if is_floating else x

        return [copied(x) for x in grads], [copied(x) for x in rest], {name: copied(x) for name, x in options.items()}

    def results(
        self, native: Native, call: Callable[..., Any], grads: list[Any], rest: list[Any], options: dict[str, Any]
    ) -> tuple[Any, Sequence[Any]]:
        """The norm, or None, and the gradients of a call of the native."""
        return self.outcome(native, call(grads[0] if native.applied is Applied.TENSOR else grads, *rest, **options), grads)

    def outcome(self, native: Native, made: Any, tensors: list[Any]) -> tuple[Any, Sequence[Any]]:
        """The norm, or None, and the gradients in what a call returned."""
        if native.applied is Applied.NORM:
            return made, []
        return (made[1], [x for x in made[0] if x is not None]) if native.applied is Applied.TENSORS else (None, [made])

    def read(self, x: Any) -> tuple[np.ndarray, str]:
        return tf.cast(x, tf.float64).numpy(), tf.as_dtype(x.dtype).name


def _is_weight(x: Any) -> bool:
    return type(x).__module__.startswith("keras.")
