"""The results of a run: one for each case, and the report of all."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["REASONS", "STATUSES", "Report", "Result"]

#: status -> its meaning
STATUSES: Mapping[str, str] = {
    "pass": "as it should be",
    "native": "as the native, where gradclip departs from it on purpose",
    "fail": "claimed, and not as it should be",
    "expected": "a declared failure, which failed",
    "unexpected": "a declared failure, which passed: the declaration is wrong",
    "unclaimed": "not claimed, so not tried",
}

#: reason of a failure -> its meaning
REASONS: Mapping[str, str] = {
    "": "the outcome differs",
    "raised": "it raised",
    "hung": "it did not end within the time limit",
    "crashed": "the process ended",
    "garbage": "its result cannot be read",
    "malformed": "the target or the vector file cannot be used",
}


@dataclass(frozen=True)
class Result:
    """One case on one target."""

    target: str
    operation: str
    case: str  #: "torch.clip_grad_norm_/E4": a vector, "torch.clip_grad_norm_/order_invariance": a check
    kind: str  #: "vector" or "check"
    status: str  #: one of :data:`STATUSES`
    reason: str = ""  #: for a failure, declared or not: one of :data:`REASONS`
    message: str = ""  #: the fault; for a declared failure the declared reason comes first
    needs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    expected: Any = None  #: JSON: a list of outcomes, {"gradients": [...], "norm": ...} or {"error": ...}; None for a check
    got: Any = (
        None  #: JSON: one outcome, {"gradients": [...], "norm": ...} or {"error": "ValueError: ..."}; None if there is none
    )
    ulps: float | None = None  #: the largest distance from the nearest expected outcome; infinite if ulp do not apply
    seconds: float = 0.0

    @property
    def conformant(self) -> bool:
        """Whether this result leaves a target conformant."""
        return self.status not in ("fail", "unexpected")

    def as_json(self) -> dict[str, Any]:
        """JSON without infinities: ``ulps`` is then "inf"."""
        json = dataclasses.asdict(self)
        json["needs"], json["flags"] = list(self.needs), list(self.flags)
        if self.ulps is not None and self.ulps == float("inf"):
            json["ulps"] = "inf"
        return json

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Result:
        values = dict(json)
        values["needs"], values["flags"] = tuple(values["needs"]), tuple(values["flags"])
        values["ulps"] = None if values["ulps"] is None else float(values["ulps"])
        return cls(**values)


@dataclass
class Report:
    """All results of a run.

    >>> report = Report("1.0.0", {}, {"mine": {"versions": {}, "device": "cpu", "seconds": 0.1}})
    >>> report.results.append(Result("mine", "optax.clip", "optax.clip/A1", "vector", "pass"))
    >>> report.conformant, report.counts()["pass"], Report.from_json(report.as_json()) == report
    (True, 1, True)
    """

    suite_version: str
    vector_versions: dict[str, str]  #: operation -> the version of its vectors
    targets: dict[str, dict[str, Any]]  #: name -> {"versions": {name: version}, "device": text, "seconds": number}
    results: list[Result] = field(default_factory=list)

    @property
    def conformant(self) -> bool:
        """Whether at least one case ran, and none failed or passed unexpectedly."""
        return all(result.conformant for result in self.results) and any(r.status != "unclaimed" for r in self.results)

    def counts(self, target: str | None = None) -> dict[str, int]:
        """Status -> number of results, of one target or of all."""
        counted = Counter(result.status for result in self.results if target is None or result.target == target)
        return {status: counted[status] for status in STATUSES}

    def as_json(self) -> dict[str, Any]:
        return {
            "suite_version": self.suite_version,
            "vector_versions": dict(self.vector_versions),
            "targets": {name: dict(entry) for name, entry in self.targets.items()},
            "conformant": self.conformant,
            "counts": self.counts(),
            "results": [result.as_json() for result in self.results],
        }

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Report:
        results = [Result.from_json(result) for result in json["results"]]
        return cls(json["suite_version"], dict(json["vector_versions"]), dict(json["targets"]), results)
