"""The vectors of limits that follow the run: each rule as it was published, in float64, without gradclip."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vectors.files import VECTORS

__all__ = ["CLIPPED", "percentile", "texts"]

Json = dict[str, Any]
FOLDER = VECTORS / "limits"
STEPS = 60
RUNS = {
    "steady": "norms that scatter around 1",
    "falling": "norms that fall by 3 % in each step",
    "rising": "norms that rise by 3 % in each step",
    "spike": "one norm that is 1,000 times as large",
    "spikes": "every tenth norm is 20 times as large",
    "level": "norms that jump to ten times as much and stay there",
    "nan": "one norm that is NaN, and ten steps later one that is 1,000 times as large",
    "inf": "one infinite norm, and ten steps later one that is 1,000 times as large",
}


def norms(run: str) -> list[float]:
    """The norms of a run; the same in each call."""
    draw = random.Random(run)
    found = [draw.lognormvariate(0.0, 0.3) for _ in range(STEPS)]
    factor = {"falling": 0.97, "rising": 1.03}.get(run, 1.0)
    found = [norm * factor**step for step, norm in enumerate(found)]
    if run in ("spike", "nan", "inf"):
        found[50] *= 1000.0
    if run in ("nan", "inf"):  # no later limit may know of it
        found[40] = float(run)
    if run == "spikes":
        found = [norm * (20.0 if step % 10 == 9 else 1.0) for step, norm in enumerate(found)]
    if run == "level":
        found = [norm * (10.0 if step >= 40 else 1.0) for step, norm in enumerate(found)]
    return found


def zclip(given: Sequence[float], alpha: float, z: float, warmup: int, eps: float) -> list[float]:
    """Kumar 2025, equations 1 to 6, with the warm-up of the published code, which clips nothing."""
    clipped: list[float] = []
    first: list[float] = []
    mean = variance = 0.0
    for norm in given:
        if not math.isfinite(norm):
            clipped.append(math.nan)
            continue
        if len(first) < warmup:
            first.append(norm)
            mean = math.fsum(first) / len(first)
            variance = math.fsum((n - mean) ** 2 for n in first) / len(first)
            clipped.append(norm)
            continue
        deviation = math.sqrt(variance)
        score = (norm - mean) / (deviation + eps)
        clipped.append(mean + z * deviation * z / score if score > z else norm)
        mean = alpha * mean + (1 - alpha) * clipped[-1]
        variance = alpha * variance + (1 - alpha) * (clipped[-1] - mean) ** 2
    return clipped


def percentile(seen: Sequence[float], percent: float) -> float:
    """A percentile, linear between its neighbours."""
    place = percent / 100 * (len(seen) - 1)
    low, ordered = math.floor(place), sorted(seen)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(seen) - 1)] - ordered[low])


def autoclip(given: Sequence[float], percent: float, counts: str) -> list[float]:
    """Seetharaman 2020. It counts the norm of the step itself ("with"), or only those before it ("before")."""
    clipped: list[float] = []
    seen: list[float] = []
    for norm in given:
        if not math.isfinite(norm):
            clipped.append(math.nan)
            continue
        known = [*seen, norm] if counts == "with" else seen
        clipped.append(min(norm, percentile(known, percent)) if known else norm)
        seen.append(norm)
    return clipped


CLIPPED: dict[str, Callable[..., list[float]]] = {"zclip": zclip, "autoclip": autoclip}
_RULES: dict[str, tuple[str, str, list[Json]]] = {
    "zclip": (
        "n, or mean + z**2 * deviation / score if score = (n - mean) / (deviation + eps) is above z; the averages take it",
        "https://arxiv.org/abs/2504.02507",
        [{"alpha": 0.97, "z": 2.5, "warmup": 25, "eps": 1e-6}, {"alpha": 0.9, "z": 2.0, "warmup": 10, "eps": 1e-6}],
    ),
    "autoclip": (
        "min(n, the percentile of the norms before this step, or with it; linear between its neighbours)",
        "https://arxiv.org/abs/2007.14469",
        [{"percent": percent, "counts": counts} for counts in ("with", "before") for percent in (10.0, 90.0)],
    ),
}


def _written(number: float) -> str:
    return number.hex() if math.isfinite(number) else repr(number)


def _vectors(rule: str) -> Iterator[Json]:
    for parameters in _RULES[rule][2]:
        told = "-".join(f"{value:g}" if isinstance(value, float) else f"{value}" for value in parameters.values())
        for run, comment in RUNS.items():
            given = norms(run)
            clipped = CLIPPED[rule](given, **parameters)
            yield {
                "id": f"{run}-{told}",
                "comment": comment,
                "parameters": parameters,
                "norms": list(map(_written, given)),
                "clipped": list(map(_written, clipped)),
            }


def texts() -> Iterator[tuple[Any, str]]:
    """Every file, with its content."""
    for rule, (formula, documentation, _) in _RULES.items():
        head = {"schema": "schema.json", "version": "1.0.0", "rule": rule, "formula": formula, "documentation": documentation}
        lines = ",\n".join(json.dumps(vector) for vector in _vectors(rule))
        yield FOLDER / f"{rule}.json", json.dumps(head)[:-1] + f',\n"vectors": [\n{lines}\n]}}\n'
