"""Norms and coefficients as Python floats: many at once, in one transfer for each framework and shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gradclip.backend import Backend
from gradclip.errors import ArgumentError, ArgumentTypeError
from gradclip.registry import find

__all__ = ["check", "leaves", "read"]


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


def check(tree: Any) -> None:
    """Refuse what is no norm, and what is traced: its value does not exist yet."""
    for x in leaves(tree):
        if type(x) is float or isinstance(x, (float, int)):
            continue
        backend = find(x)
        if backend is None:
            hint = "pass what gradclip.clip_ or gradclip.clip_grad_norm_ returned."
            raise ArgumentTypeError("A norm must be a number or a tensor.", f"norm={x!r}", hint)
        if not backend.can_look(x):
            hint = "carry a state through: state = monitor.init(), then state = gradclip.observed(state, result)."
            raise ArgumentError("A norm that is being traced has no value yet.", f"norm={x}", hint)


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
