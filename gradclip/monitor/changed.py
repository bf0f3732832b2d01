"""How many elements a rule by value clipped: those at a bound, or beyond it if the gradients are those before the clip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradclip.backend import Backend
from gradclip.dtypes import INTEGERS
from gradclip.gradients import open_
from gradclip.registry import find
from gradclip.result import ClipResult
from gradclip.scale import fitted

__all__ = ["changed", "taken"]


def changed(result: ClipResult[Any], grads: Any, groups: int) -> list[Any]:
    """For each group, or for the one rule, the number of its clipped elements; None for a rule with a norm.

    A number is an int, or a 0-d tensor on the device of the gradients.

    Args:
        result: of a clip.
        grads: the gradients in it, or the same before the clip, or the parameters that hold them.
        groups: the number of groups, 1 for a rule.
    """
    found: list[Any] = [None] * groups
    bounds = result.bounds()
    if not bounds or grads is None:
        return found
    opened = open_(grads)
    for k, (lower, upper, places) in bounds.items():
        leaves = [opened.leaves[i] for i in places if i < len(opened.leaves)]
        found[k] = 0 if opened.backend is None else _count(opened.backend, [x for x in leaves if x is not None], lower, upper)
    return found


def taken(result: Any, grads: Any, groups: int) -> tuple[Any, list[Any]]:
    """Whether the step was skipped, and for each group the elements that a rule by value clipped: numbers or tensors."""
    if type(result) is not ClipResult:
        return False, [None] * groups
    backend = None if isinstance(result.skip, bool) else find(result.skip)
    skip = result.skip if backend is None else backend.cast(result.skip, "float32")
    return skip, changed(result, result.grads if grads is None else grads, groups)


def _count(backend: Backend, tensors: Sequence[Any], lower: Any, upper: Any) -> Any:
    total: Any = 0
    with backend.arithmetic(False):
        for x in tensors:
            values = backend.detach(backend.rows(x)[0])
            at_least, at_most = (backend.cast(condition, "float32") for condition in _sides(backend, values, lower, upper))
            many = backend.sum(backend.clip(at_least + at_most, None, 1.0), None)
            total = many if isinstance(total, int) else total + backend.asarray(many, "float32", total)
    return total


def _sides(backend: Backend, values: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    """Which elements are at the bounds, as the dtype of the gradient has them."""
    low, high = (fitted(backend, bound, values) for bound in (lower, upper))
    dtype = backend.dtype(values)
    if dtype not in INTEGERS:
        low, high = (backend.asarray(bound, dtype, values) for bound in (low, high))
    return values <= low, values >= high
