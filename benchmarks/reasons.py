"""Why a case is behind its native or below a floor, as data, and the list of those cases under their reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.case import matches
from benchmarks.floors import FLOORS, missed
from benchmarks.outcome import Outcome

__all__ = ["LEVEL", "NOT_EXPLAINED", "REASONS", "Reason", "not_ahead"]

LEVEL = "Level with the native: the interval of the ratio reaches 1."
NOT_EXPLAINED = "Not explained."


@dataclass(frozen=True)
class Reason:
    """Why some cases are not ahead."""

    why: str  #: a sentence, in Markdown
    only: tuple[str, ...]  #: patterns of cases


#: the first that fits a case is its reason
REASONS: tuple[Reason, ...] = ()


def not_ahead(outcome: Outcome, reasons: tuple[Reason, ...] = REASONS) -> str:
    """The cases behind the native, or below a floor, under their reasons, in Markdown; those without one come first."""
    groups: dict[str, list[str]] = {why: [] for why in (NOT_EXPLAINED, *(reason.why for reason in reasons), LEVEL)}
    for name, (said, level) in _found(outcome).items():
        why = next((reason.why for reason in reasons if matches(name, reason.only)), LEVEL if level else NOT_EXPLAINED)
        groups[why].append(f"- `{name}`: {'; '.join(said)}")
    parts = ["\n".join((f"**{why}**\n", *lines)) for why, lines in groups.items() if lines]
    return "\n\n".join(parts) or "In no case."


def _found(outcome: Outcome) -> dict[str, tuple[list[str], bool]]:
    """By name what there is to say, and whether it is no more than the noise of the measurement."""
    cases = {case["key"]: case for case in outcome.compared}
    found = {case["key"]: ([_ratio(case)], bool(case["high"] >= 1)) for case in outcome.behind}
    for miss in missed(outcome, FLOORS):
        said, _ = found.get(miss.name, ([], False))
        if miss.floor.quantity == "ratio" and miss.name in cases:
            said = [*(said or [_ratio(cases[miss.name])]), miss.bound]
        else:
            said = [*said, f"{miss.got}, {miss.bound}"]
        found[miss.name] = said, False
    return found


def _ratio(case: dict[str, Any]) -> str:
    return f"{case['ratio']:.2f} ({case['low']:.2f} to {case['high']:.2f})"
