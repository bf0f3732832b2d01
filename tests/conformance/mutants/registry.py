"""The mutants: implementations that are the reference but for one mistake."""

from __future__ import annotations

from collections.abc import Callable

from conformance.mutants.reference import Reference

MUTANTS: list[type[Reference]] = []


def mutant(*operations: str, lacks: tuple[str, ...] = (), large: bool = False) -> Callable[[type[Reference]], type[Reference]]:
    """Add a mutant, which claims these operations; its docstring is the mistake.

    Args:
        operations: those in which the mistake is made.
        lacks: features that are not claimed: what a library with this mistake would hardly have.
        large: whether it takes a million elements to be seen; the others are spared them, for time.
    """

    def add(kind: type[Reference]) -> type[Reference]:
        kind.operations, kind.lacks = operations, frozenset(lacks) | (frozenset() if large else {"large"})
        kind.name = kind.__name__
        MUTANTS.append(kind)
        return kind

    return add
