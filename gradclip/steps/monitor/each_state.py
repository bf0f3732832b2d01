"""The norm of each gradient as a pure function of a state, for traced code: which is largest, which is always zero.

The state has a vector for each name: how often it was measured, the sum of its shares, and how often it was zero. Traced code
cannot leave a step out, so that it measures each of them and counts the steps that are due.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import LARGEST
from gradclip.core.gradients import Gradients
from gradclip.core.registry import find
from gradclip.limits.stored import Stored
from gradclip.steps.monitor.each import labels, norms_of

__all__ = ["blank", "loaded", "observed", "sums"]

_LENGTH = 3
_MOST = LARGEST["float32"]


def blank(backend: Backend, opened: Gradients, every: int, like: Tensor | None) -> dict[str, Any]:
    """The state before the first step, for these gradients."""
    empty = {name: backend.asarray([0.0] * _LENGTH, "float32", like) for name in labels(opened)}
    return {"every": backend.asarray(every, "int32", like), "sums": empty}


def observed(seen: Mapping[str, Any], opened: Gradients, step: Tensor) -> dict[str, Any]:
    """The state after the step with this number; ``opened`` has its gradients."""
    backend, names, places = opened.backend, labels(opened), opened.unique()
    known = [(names[i], i) for i in places if names[i] in seen["sums"]]
    if backend is None or not known:
        return dict(seen)
    like = seen["sums"][known[0][0]]
    with backend.arithmetic(False):
        found = norms_of(opened)[0]
        vector = _vector(backend, [found[i] for _, i in known], like)
        largest = backend.max(vector, None)
        counts = _truth(backend, largest > 0, like) * _truth(backend, largest <= _MOST, like)
        step, every = (backend.asarray(x, "int32", like) for x in (step, seen["every"]))  # Keras on torch keeps one as an array
        counts = counts * _truth(backend, step % every < 1, like)
        parts = backend.where(counts > 0, vector / backend.where(counts > 0, largest, 1.0), 0.0)  # no square overflows
        shares = parts * parts / backend.clip(backend.sum(parts * parts, None), 1.0, None)
        after = dict(seen["sums"])
        for k, (name, _) in enumerate(known):
            new = [counts, shares[k], counts * _truth(backend, parts[k] <= 0, like)]
            after[name] = after[name] + backend.stack(new, "float32")
    return {"every": seen["every"], "sums": after}


def _vector(backend: Backend, found: list[Any], like: Tensor) -> Tensor:
    """Norms in float32. A larger one stays infinite, and such a step does not count."""
    if all(isinstance(x, float) for x in found):
        return backend.asarray([x if x <= _MOST else float("inf") for x in found], "float32", like)
    return backend.stack([backend.asarray(backend.detach(x), "float32", like) for x in found], "float32")


def _truth(backend: Backend, condition: Tensor, like: Tensor) -> Tensor:
    return backend.asarray(backend.cast(condition, "float32"), "float32", like)


# ---- back on the host ------------------------------------------------------------------------------------------------------


def sums(stored: Stored) -> dict[str, list[float]]:
    """The sums of each gradient that was measured, as an eager monitor keeps them; the norms of parameters are unknown."""
    found = {name: [x.number() for x in numbers.entries(_LENGTH)] for name, numbers in stored["sums"].items()}
    return {name: [*numbers, 0.0, 0.0] for name, numbers in found.items() if numbers[0]}


def loaded(made: Mapping[str, Any], saved: Mapping[str, list[float]]) -> dict[str, Any]:
    """An empty state with the sums of the gradients that have the same names."""
    filled = {name: _filled(x, saved[name]) if name in saved else x for name, x in made["sums"].items()}
    return {"every": made["every"], "sums": filled}


def _filled(x: Tensor, numbers: list[float]) -> Tensor:
    backend = find(x)
    assert backend is not None
    return backend.asarray(numbers[:_LENGTH], "float32", x)
