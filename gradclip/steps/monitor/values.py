"""What a step tells: its norms and coefficients, whether it was skipped, and how many elements a rule by value clipped.

Numbers become Python floats many at once, in one transfer for each framework and shape. An element counts as clipped at a
bound, or beyond it if the gradients are those before the clip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gradclip.core.backend import Backend
from gradclip.core.containers import DEEPEST, nested_too_deep
from gradclip.core.dtypes import INTEGERS
from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.gradients import open_
from gradclip.core.registry import find, loaded
from gradclip.core.result import ClipResult
from gradclip.core.rule import number_or_tensor
from gradclip.core.scale import fitted

__all__ = ["changed", "detached", "detached_limit", "flat", "leaves", "no_norm", "read", "taken"]


def leaves(tree: Any, depth: int = 0) -> Iterator[Any]:
    """The numbers and tensors in nested lists, tuples and mappings, without None."""
    if depth > DEEPEST:
        raise nested_too_deep(tree)
    if isinstance(tree, Mapping):
        tree = tree.values()
    elif not isinstance(tree, (list, tuple)):
        if tree is not None:
            yield tree
        return
    for child in tree:
        yield from leaves(child, depth + 1)


def flat(tree: Any) -> list[Any]:
    """The numbers and tensors in a framework's container, without None and without the parameters of pairs."""
    for x in leaves(tree):
        if isinstance(x, (float, int)):
            continue
        backend = find(x) or next((known for known in loaded() if known.containers.is_container(x)), None)
        if backend is not None and x is not tree:
            return [x for x in backend.containers.flatten(tree)[0] if x is not None]
        if backend is not None and find(x) is None:
            return [x for x in backend.containers.flatten(x)[0] if x is not None]
        break
    return list(leaves(tree))


def detached(tree: Any) -> Any:
    """The norms in a container as a flat list, detached: a recorded history would keep gradients alive.

    Raises:
        TypeError: for an object that is not a norm.
        ValueError: for a traced tensor, which has no value yet.
    """
    return [_detached(x) for x in flat(tree)]


def detached_limit(limit: Any) -> list[Any]:
    """The limit of a norm in a list; an empty one for None.

    Raises:
        TypeError: for an object that is no number and no tensor.
        ValueError: for a number that is negative or NaN, and for a tensor of several elements.
    """
    if limit is None:
        return []
    if isinstance(limit, bool):
        raise ArgumentTypeError("limit must be a number or a tensor.", f"limit={limit}")
    known = number_or_tensor("limit", limit)
    if isinstance(known, float) and known < 0:
        raise ArgumentError("limit must not be negative.", f"limit={known}")
    return [known] if isinstance(known, float) else detached(known)


def no_norm(x: Any) -> ArgumentTypeError:
    """The error for an object that is not a norm."""
    hint = "pass what gradclip.clip_ or gradclip.clip_grad_norm_ returned."
    return ArgumentTypeError("A norm must be a float, or a tensor of floats.", f"norm={shown(x)}", hint)


def _detached(x: Any) -> Any:
    if isinstance(x, float):
        return x
    backend = find(x)
    if backend is None or "float" not in backend.dtype(x):
        raise no_norm(x)
    if not backend.can_read(x):
        hint = "carry a state through: state = monitor.init(), then state = gradclip.observed(state, result)."
        raise ArgumentError("A norm that is being traced has no value yet.", f"norm={x}", hint)
    return x if backend.reads_free([x]) else backend.detach(x)


def read(values: Sequence[Any]) -> list[list[float]]:
    """The elements of each number or tensor; 0-d tensors of one framework and dtype come in one transfer."""
    found: list[list[float]] = [[] for _ in values]
    together: dict[tuple[int, str], tuple[Backend, list[int]]] = {}
    for i, x in enumerate(values):
        if isinstance(x, (float, int)):
            found[i] = [float(x)]
            continue
        backend = find(x)
        assert backend is not None
        if backend.shape(x):
            found[i] = list(map(float, leaves(backend.tolist(x))))
        else:
            together.setdefault((id(backend), backend.dtype(x)), (backend, []))[1].append(i)
    for (_, dtype), (backend, places) in together.items():
        room = 1 << (len(places) - 1).bit_length()  # few different lengths: a framework compiles a program for each
        padded = [values[i] for i in places] + [values[places[0]]] * (room - len(places))
        for i, number in zip(places, backend.tolist(backend.stack(padded, dtype)), strict=False):
            found[i] = [float(number)]
    return found


# ---- clipped elements -----------------------------------------------------------------------------------------------------


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
