"""A native's outcomes of the vectors, and the checks that it fails: the suite runs the native's own target."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradclip.conformance import Report, Result
from gradclip.conformance.array import COMPLEX, FLOATS
from vectors import ranks
from vectors.xfails import pattern_of

Json = dict[str, Any]
NATIVES = ("torch", "tensorflow", "paddle", "optax", "keras@tensorflow", "keras@torch", "keras@jax", ranks.NATIVE)
_MOST = 12  # the most values of an array in a recorded outcome
_FEW_ULP = 8  # the allowed difference between recordings of two CPUs


@dataclass
class Recording:
    """One native."""

    name: str
    pattern: str  #: the pattern of its target's names
    versions: Mapping[str, str]
    vectors: dict[str, Any] = field(default_factory=dict)  #: case id -> "agrees", "unclaimed" or the outcome
    checks: set[str] = field(default_factory=set)  #: the id of each check that it fails
    unsure: list[str] = field(default_factory=list)  #: the cases that another CPU might decide otherwise


def record(native: str, tolerances: Mapping[str, int], report: Path | None = None) -> Recording:
    """Run a native, in separate processes: some of them crash.

    Args:
        native: one of :data:`NATIVES`.
        tolerances: the ulp of each vector.
        report: the output of ``gradclip conformance native:NATIVE --json``, to use instead of a run.
    """
    if report is not None:
        reports = [_read(report)]
    elif native == ranks.NATIVE:
        reports = [_report("torch", "--ranks", str(size), "--timeout", "10") for size in ranks.SIZES]
    else:
        reports = [_report(native)]
    (entry,) = reports[0].targets.values()
    framework, _, backend = native.partition("@")
    also = {"optax": "jax", "keras": backend}.get(framework, "")
    versions = {name: version for name, version in entry["versions"].items() if name in (framework, also)}
    recording = Recording(native, pattern_of(native), versions)
    for result in (result for report in reports for result in report.results):
        if result.kind == "vector":
            recording.vectors[result.case] = _native(result)
            recording.unsure += _unsure(result, tolerances)
        elif result.status in ("fail", "expected"):
            recording.checks.add(result.case)
    return recording


def _report(native: str, *options: str) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        command = [sys.executable, "-P", "-m", "gradclip", "conformance", f"native:{native}", *options, "--json", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if not path.exists():
            raise RuntimeError(
                f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            )
        return _read(path)


def _read(path: Path) -> Report:
    return Report.from_json(json.loads(path.read_text(encoding="utf-8")))


def _native(result: Result) -> Any:
    if result.status in ("fail", "expected"):
        return kept(result.got, result.reason)
    return "unclaimed" if result.status == "unclaimed" else "agrees"


def kept(outcome: Any, reason: str) -> Any:
    """The first values of each array of an outcome; for an error its type."""
    if outcome is None:
        return {"error": reason}
    if "error" in outcome:
        return {"error": outcome["error"].partition(":")[0]}
    return {**outcome, "gradients": [None if g is None else _first(g) for g in outcome["gradients"]]}


def _first(array: Json) -> Json:
    values = array["values"]
    if len(values) <= _MOST:
        return array
    return {**array, "values": values[:_MOST], "total": array.get("total", len(values))}


def _unsure(result: Result, tolerances: Mapping[str, int]) -> Iterator[str]:
    """Whether a distance is so near the tolerance that another CPU might be on its other side."""
    tolerance = tolerances[result.case]
    if result.ulps is not None and not result.reason and tolerance / 2 < result.ulps <= 2 * tolerance:
        yield f"{result.case}: {result.ulps:g} ulp away, {tolerance} allowed"


# ---- against an earlier recording ---------------------------------------------------------------------------------------


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The differences of a recording from an earlier one; errors, and floats within a few ulp, count as equal."""
    if isinstance(old, dict) and isinstance(new, dict) and "error" in old and "error" in new:
        return  # which error it is varies, if uninitialised memory is read
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        if "dtype" in old and old["dtype"] == new["dtype"] and ("values" in old or "value" in old):
            yield from _unlike_numbers(old, new, path)
            return
        for key in old:
            yield from differences(old[key], new[key], f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differences(a, b, f"{path}[{i}]")
    elif old != new:
        yield f"{path}: {old} was recorded, and it is {new}"


def _unlike_numbers(old: Json, new: Json, path: str) -> Iterator[str]:
    rest = [{key: value for key, value in array.items() if key not in ("value", "values")} for array in (old, new)]
    a, b = ([array["value"]] if "value" in array else array["values"] for array in (old, new))
    if rest[0] != rest[1] or len(a) != len(b) or not all(_near(x, y, old["dtype"]) for x, y in zip(a, b, strict=True)):
        yield f"{path}: {old} was recorded, and it is {new}"


def _near(a: Any, b: Any, dtype: str) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return all(_near(x, y, COMPLEX[dtype]) for x, y in zip(a, b, strict=True))
    if a == b or not (isinstance(a, str) and isinstance(b, str)):
        return bool(a == b)
    x, y = float.fromhex(a), float.fromhex(b)
    if dtype not in FLOATS or x - x != 0 or y - y != 0:
        return x == y
    bits, least = FLOATS[dtype]
    return abs(x - y) <= _FEW_ULP * max(max(abs(x), abs(y)) * 2.0 ** (1 - bits), 2.0 ** (least - bits + 1))
