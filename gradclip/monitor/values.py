"""Norms and coefficients as Python floats: many at once, in one transfer for each framework and shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gradclip.backend import Backend
from gradclip.errors import ArgumentError, ArgumentTypeError
from gradclip.registry import find

__all__ = ["held", "leaves", "read"]


def leaves(tree: Any) -> Iterator[Any]:
    """The numbers and tensors in nested lists, tuples and mappings, without None."""
    if isinstance(tree, Mapping):
        tree = tree.values()
    elif not isinstance(tree, (list, tuple)):
        if tree is not None:
            yield tree
        return
    for child in tree:
        yield from leaves(child)


def held(tree: Any) -> Any:
    """The same without the history of a derivative, which would keep gradients alive.

    Raises:
        TypeError: for what is no norm.
        ValueError: for what is traced: its value does not exist yet.
    """
    if isinstance(tree, (float, int)) or tree is None:
        return tree
    if isinstance(tree, Mapping):
        return [held(child) for child in tree.values()]
    if isinstance(tree, (list, tuple)):
        return [held(child) for child in tree]
    backend = find(tree)
    if backend is None:
        hint = "pass what gradclip.clip_ or gradclip.clip_grad_norm_ returned."
        raise ArgumentTypeError("A norm must be a number or a tensor.", f"norm={tree!r}", hint)
    if not backend.can_look(tree):
        hint = "carry a state through: state = monitor.init(), then state = gradclip.observed(state, result)."
        raise ArgumentError("A norm that is being traced has no value yet.", f"norm={tree}", hint)
    return tree if backend.is_concrete([tree]) else backend.detach(tree)


def read(values: Sequence[Any]) -> list[list[float]]:
    """The elements of each number or tensor; those of 0-d tensors of one framework and dtype come in one transfer."""
    found: list[list[float]] = [[] for _ in values]
    together: dict[tuple[int, str], tuple[Backend, list[int]]] = {}
    for i, x in enumerate(values):
        if isinstance(x, (float, int)):
            found[i] = [float(x)]
            continue
        backend = find(x)
        assert backend is not None
        if backend.shape(x):
            found[i] = list(map(float, leaves(backend.numbers([x], backend.dtype(x)))))
        else:
            together.setdefault((id(backend), backend.dtype(x)), (backend, []))[1].append(i)
    for (_, dtype), (backend, places) in together.items():
        numbers = backend.numbers([values[i] for i in places], dtype)
        for i, number in zip(places, numbers, strict=True):
            found[i] = [number]
    return found
