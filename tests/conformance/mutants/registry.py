"""The registry of mutants: implementations that differ from the reference in one mistake."""

from __future__ import annotations

from collections.abc import Callable

from conformance.mutants.reference import Reference

MUTANTS: list[type[Reference]] = []


def mutant(*operations: str, lacks: tuple[str, ...] = (), large: bool = False) -> Callable[[type[Reference]], type[Reference]]:
    """Add a mutant that claims these operations; its docstring names the mistake.

    Args:
        operations: the operations that contain the mistake.
        lacks: features that the mutant does not claim: a library with this mistake would hardly have them.
        large: whether only gradients of a million elements reveal the mistake; other mutants skip these to save time.
    """

    def add(kind: type[Reference]) -> type[Reference]:
        kind.operations, kind.lacks = operations, frozenset(lacks) | (frozenset() if large else {"large"})
        kind.name = kind.__name__
        MUTANTS.append(kind)
        return kind

    return add
