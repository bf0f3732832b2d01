"""Where gradclip departs from a native on purpose: the native's outcome, beside the exact one."""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from typing import Any

from gradclip.conformance.cases import Case, Plan
from gradclip.conformance.declared import shipped_xfails
from gradclip.conformance.load import Vector
from gradclip.conformance.specification import NATIVES
from gradclip.conformance.target import dialect_of
from gradclip.core.errors import ArgumentError

__all__ = ["as_native"]

_ROUNDED = 4  #: in ulp: the native was recorded on another processor; a missing epsilon differs by more


def as_native(made: Plan, like: str | None) -> Plan:
    """The plan with the outcomes of natives.

    Args:
        made: the plan of the run.
        like: "native:torch", whose outcomes then pass; None for that of each operation's own framework, which is told apart.

    Raises:
        ValueError: for an unknown native.
    """
    if like is None:
        known = {name: _reasons(name) for name in NATIVES}
        others = [_case(case, name := dialect_of(case.operation), known[name]) for case in made.cases]
        return replace(made, cases=[replace(a, of_native=b) for a, b in zip(made.cases, others, strict=True)])
    kind, _, name = like.partition(":")
    if kind != "native" or name not in NATIVES:
        hint = f"one of {', '.join(f'native:{one}' for one in NATIVES)}."
        raise ArgumentError("There is no native of this name.", repr(like), hint)
    return replace(made, cases=[_case(case, name, _reasons(name)) for case in made.cases])


def _reasons(name: str) -> dict[str, str]:
    """Pattern of cases -> why this native fails them."""
    reasons: dict[str, str] = {}
    for target, cases in shipped_xfails().items():
        if target.startswith(f"{name} *"):  # of all its versions
            reasons.update(cases)
    return reasons


def _case(case: Case, name: str, reasons: dict[str, str]) -> Case:
    why = next((f"as the native: {text}" for pattern, text in reasons.items() if fnmatch.fnmatchcase(case.id, pattern)), "")
    if case.kind != "vector":
        return replace(case, allowed=why)
    recorded = [outcome for key, outcome in case.content.native.items() if key.partition("@")[0] == name]
    others: list[Any] = [{**outcome, "why": "the native's"} for outcome in recorded if isinstance(outcome, dict)]
    if not others:
        return case
    given = case.content.json
    json = {**given, "expected": [*given["expected"], *others], "ulp": max(given["ulp"], _ROUNDED)}
    allowed = why if "@" in next(iter(case.content.native)) else ""  # overflows vary
    return replace(case, content=Vector(case.content.operation, json), allowed=allowed)
