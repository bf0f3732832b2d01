"""All measurements of a run: as data, and in a file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gradclip.commands.common import finite

__all__ = ["Outcome", "mean", "replaced"]

Entry = dict[str, Any]


@dataclass
class Outcome:
    """The measurements of a run; every entry as the worker sent it."""

    machine: Entry = field(default_factory=dict)
    frameworks: dict[str, Entry] = field(default_factory=dict)  #: versions, notes, rates, threads; or why it was "skipped"
    cases: list[Entry] = field(default_factory=list)
    accuracy: list[Entry] = field(default_factory=list)

    @property
    def compared(self) -> list[Entry]:
        """The cases that both sides could do."""
        return [case for case in self.cases if "ratio" in case]

    @property
    def behind(self) -> list[Entry]:
        """The cases in which gradclip takes longer, the worst first."""
        return sorted((case for case in self.compared if case["ratio"] < 1), key=lambda case: float(case["ratio"]))

    def write(self, path: Path) -> None:
        """Write JSON, with names for the numbers that JSON lacks."""
        part = path.with_name(f"{path.name}.part")  # an interruption leaves the old file or the new one, not half of it
        part.write_text(json.dumps(finite(asdict(self)), indent=1, allow_nan=False) + "\n")
        part.replace(path)

    @staticmethod
    def read(paths: Sequence[Path]) -> Outcome:
        """Read files; the cases of a later file replace those of an earlier one."""
        outcomes = [Outcome(**_numbers(json.loads(path.read_text()))) for path in paths]
        sources = dict.fromkeys(outcome.machine.get("gradclip", "of an unknown version") for outcome in outcomes)
        merged = outcomes[0]
        for later in outcomes[1:]:
            merged.machine = later.machine
            merged.frameworks |= later.frameworks
            merged.cases = replaced(merged.cases, later.cases, ("key",))
            merged.accuracy = replaced(merged.accuracy, later.accuracy, ("framework", "mode", "dtype", "order"))
        merged.machine["gradclip"] = ", ".join(sources)
        return merged


def mean(cases: Iterable[Entry]) -> float:
    """The geometric mean of the ratios."""
    return statistics.geometric_mean(case["ratio"] for case in cases)


def replaced(earlier: list[Entry], later: list[Entry], names: tuple[str, ...]) -> list[Entry]:
    """The entries of two runs; a later entry replaces an earlier one with the same names."""
    by_name = {tuple(entry[name] for name in names): entry for entry in [*earlier, *later]}
    return list(by_name.values())


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: float(child) if key.endswith(" error") and child == "inf" else _numbers(child) for key, child in value.items()
        }
    return [_numbers(child) for child in value] if isinstance(value, list) else value
