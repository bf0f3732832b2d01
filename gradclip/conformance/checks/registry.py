"""The checks by name, and the way to add one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradclip.conformance.checks.bench import Bench
from gradclip.conformance.checks.formula import Formula
from gradclip.natives import OPERATIONS

__all__ = ["CHECKS", "Check", "add", "by_norm", "check", "every"]

Run = Callable[[Bench], None]


@dataclass(frozen=True)
class Check:
    """A property of clips: one body for every operation that has it."""

    name: str
    description: str  #: what must hold
    training: str  #: the effect on training if it does not hold
    needs: tuple[str, ...]  #: the features that a target must claim
    of: Callable[[Formula], bool]  #: whether the operation with a formula has the property
    run: Run  #: returns, or raises :class:`Mismatch`
    departure: str = ""  #: the key of the natives' behaviour in gradclip's table of departures

    def operations(self, name: str) -> bool:
        """Whether an operation has the property."""
        return self.of(Formula(OPERATIONS[name]))


#: name -> check, in the order of the files
CHECKS: dict[str, Check] = {}


def every(formula: Formula) -> bool:
    """All operations."""
    return True


def by_norm(formula: Formula) -> bool:
    """The operations that scale by a norm."""
    return formula.is_norm


def check(
    description: str,
    *,
    training: str,
    needs: tuple[str, ...] = ("float32",),
    of: Callable[[Formula], bool] = every,
    departure: str = "",
) -> Callable[[Run], Run]:
    """Add a function as the check of its name.

    Args:
        description, training, needs, of, departure: as in :class:`Check`.
    """

    def register(run: Run) -> Run:
        add(Check(run.__name__, description, training, needs, of, run, departure))
        return run

    return register


def add(check: Check) -> None:
    """Add a check; for checks that share a function."""
    if check.name in CHECKS:
        raise ValueError(f"there are two checks of the name {check.name}")
    CHECKS[check.name] = check
