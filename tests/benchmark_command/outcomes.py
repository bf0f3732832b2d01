"""Made-up outcomes."""

from __future__ import annotations

from typing import Any

from benchmarks.outcome import Outcome

MIB = 2**20


def case(key: str, ratio: float | None = None, **more: Any) -> dict[str, Any]:
    """Return an entry as the worker sends it; without a ratio it has the given fields only."""
    entry: dict[str, Any] = {"key": key, "bytes": 256 * MIB, "failures": {}}
    if ratio is not None:
        entry |= {"native seconds": 2e-3 * ratio, "gradclip seconds": 2e-3, "ratio": ratio, "rounds": 9}
        entry |= {"low": ratio * 0.99, "high": ratio * 1.01, "moves": {"read": 1, "scale": 0, "copy": 0}}
    return entry | {name.replace("_", " "): value for name, value in more.items()}


def outcome(*cases: dict[str, Any], accuracy: list[dict[str, Any]] | None = None, **frameworks: dict[str, Any]) -> Outcome:
    """Return a run on a machine with 32 MiB of cache."""
    machine = {"processor": "Abacus", "cores": 2, "cache": 32 * MIB, "memory": 16 * 2**30, "huge pages": "never"}
    machine |= {"system": "Linux 6", "python": "3.11", "load": 0.04, "gradclip": "0.1"}
    return Outcome(machine, frameworks, list(cases), accuracy or [])


def norm(error: float, **more: Any) -> dict[str, Any]:
    """Return an entry of the accuracy section."""
    entry = {"framework": "torch", "mode": "eager", "dtype": "float32", "order": "2.0", "failures": {}}
    return entry | {"gradclip error": error, "gradclip where": "all equal, 1000 in 1"} | more
