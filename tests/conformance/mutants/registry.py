"""The registry of mutants: implementations that differ from the reference in one mistake."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from conformance.mutants.reference import Reference

MUTANTS: list[type[Reference]] = []
Right = Callable[..., Any]  #: a step as the reference takes it


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


def wrong(step: str, *operations: str, **options: Any) -> Callable[[Callable[..., Any]], type[Reference]]:
    """Add a mutant with one wrong step: a function of the right step, and of the step's arguments."""

    def add(function: Callable[..., Any]) -> type[Reference]:
        def mistaken(self: Reference, *arguments: Any) -> Any:
            return function(getattr(super(kind, self), step), *arguments)

        kind = type(function.__name__, (Reference,), {"__doc__": function.__doc__, step: mistaken})
        return mutant(*operations, **options)(kind)

    return add


def changed(name: str, operation: str, mistake: str, **fields: Any) -> None:
    """Add a mutant whose rule has other values in these fields."""

    def rule(right: Right, *arguments: Any) -> Any:
        return dataclasses.replace(right(*arguments), **fields)

    rule.__name__, rule.__doc__ = name, mistake
    wrong("rule", operation)(rule)
