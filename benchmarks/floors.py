"""The floors, as data, and whether they are reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Key, matches
from benchmarks.outcome import Outcome, mean

__all__ = ["COMPILED", "FLOORS", "QUICK_FLOORS", "Floor", "Miss", "missed", "unmeasured"]

Entry = dict[str, Any]

COMPILED = ("*/compile", "*/function", "*/xla", "*/jit", "*/donated", "*/static")


@dataclass(frozen=True)
class Floor:
    """A bound on a quantity of some cases."""

    what: str
    bound: float
    only: tuple[str, ...] = ()  #: patterns of cases; all if there are none
    quantity: str = "ratio"  #: at least the bound, as is the "mean" of the ratios; at most the bound are "memory" and "error"

    @property
    def at_least(self) -> bool:
        """Whether more is better."""
        return self.quantity in ("ratio", "mean")


@dataclass(frozen=True)
class Miss:
    """A floor that was not reached."""

    floor: Floor
    name: str
    value: float | str

    def __str__(self) -> str:
        return f"{self.name}: {self.got}" if isinstance(self.value, str) else f"{self.name}: {self.got}, {self.bound}"

    @property
    def got(self) -> str:
        """The measured value."""
        return self.value if isinstance(self.value, str) else f"{self.value:.2f}"

    @property
    def bound(self) -> str:
        """The bound."""
        return f"{'at least' if self.floor.at_least else 'at most'} {self.floor.bound:g} ({self.floor.what})"


#: the floors of a full run
FLOORS: tuple[Floor, ...] = (
    Floor("no eager case is slower", 0.9, ("*/eager",)),
    Floor("geometric mean of the eager cases", 3.0, ("*/eager",), "mean"),
    Floor("no compiled case is slower", 0.85, COMPILED),
    Floor("geometric mean of the compiled cases", 1.1, COMPILED, "mean"),
    Floor("extra memory, in place or unclipped", 0.01, quantity="memory"),
    Floor("ulp of the norm", 4.0, quantity="error"),
)

#: for a quick run: so wide that a disturbed machine does not miss them
QUICK_FLOORS: tuple[Floor, ...] = (
    Floor("no case is much slower", 0.25),
    Floor("geometric mean of all cases", 1.2, quantity="mean"),
    Floor("ulp of the norm", 4.0, quantity="error"),
)


def missed(outcome: Outcome, floors: tuple[Floor, ...]) -> list[Miss]:
    """The floors that were not reached; a case that gradclip fails misses the first."""
    misses = [Miss(floors[0], name, why) for name, why in _failures(outcome)]
    for floor in floors:
        for name, value, best in _values(floor, outcome):
            if not (best >= floor.bound if floor.at_least else best <= floor.bound):
                misses.append(Miss(floor, name, value))
    return misses


def unmeasured(outcome: Outcome, floors: tuple[Floor, ...]) -> list[Floor]:
    """The floors without a case."""
    return [floor for floor in floors if next(_values(floor, outcome), None) is None]


def _failures(outcome: Outcome) -> Iterator[tuple[str, str]]:
    for name, known in outcome.frameworks.items():
        if "failure" in known:
            yield name, known["failure"]
    for entry in (*outcome.cases, *outcome.accuracy):
        for side, why in entry["failures"].items():
            if side != "native":
                yield entry.get("key") or _accuracy_name(entry), f"{side}: {why}"


def _values(floor: Floor, outcome: Outcome) -> Iterator[tuple[str, float, float]]:
    """Names, values, and the best that each value can be: for a ratio, the upper end of its interval."""
    cases = [case for case in outcome.cases if matches(Key.parse(case["key"]), floor.only)]
    compared = [case for case in cases if "ratio" in case]
    if floor.quantity == "ratio":
        yield from ((case["key"], case["ratio"], max(case["ratio"], case["high"])) for case in compared)
    elif floor.quantity == "mean" and compared:
        yield f"{len(compared)} cases", mean(compared), mean(compared)
    else:
        for name, value in _others(floor.quantity, cases, outcome.accuracy):
            yield name, value, value


def _others(quantity: str, cases: list[Entry], accuracy: list[Entry]) -> Iterator[tuple[str, float]]:
    if quantity == "memory":
        for case in cases:
            if case.get("gradclip memory") is not None and not case["moves"]["copy"]:
                yield case["key"], case["gradclip memory"]
    if quantity == "error":
        for name, entry in [*((c["key"], c) for c in cases), *((_accuracy_name(e), e) for e in accuracy)]:
            if entry.get("gradclip error") is not None:
                yield name, entry["gradclip error"]


def _accuracy_name(entry: Entry) -> str:
    return f"accuracy/{entry['framework']}/{entry['mode']}/{entry['dtype']}/p={entry['order']}"
