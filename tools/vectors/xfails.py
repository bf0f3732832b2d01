"""The known failures of natives, with reasons: the recorded vectors, and the checks that failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gradclip.conformance.checks import CHECKS
from vectors.departed import CASES
from vectors.files import FOLDER
from vectors.flags import DEPARTURE_FLAGS, FLAGS
from vectors.operations import BY_NAME

Json = dict[str, Any]
XFAILS = FOLDER / "xfails"
#: causes of a difference, before the vector's other flags
_CAUSES = (
    *("Twice", "Iterator", "NegativeLimit", "InfiniteLimit", "ZeroLimit", "Integers", "Sparse", "AccurateNorm", "FiniteNorm"),
    *(
        "MixedDtypes",
        "AnyNumber",
        "NothingToClip",
        "WideArithmetic",
        "ShapeKept",
        "DtypeKept",
        "LimitType",
        "Dtypes",
        "Unclipped",
    ),
)


def path_of(native: str) -> Any:
    return XFAILS / f"native-{native.partition('@')[0]}.json"


def pattern_of(native: str) -> str:
    """The pattern of a native's target names: ``torch 2.13.0``, ``keras 3.15.1 on jax``."""
    framework, _, backend = native.partition("@")
    return f"{framework} * on {backend}" if backend else f"{framework} *"


def vector_reasons(native: str, files: Mapping[str, Json]) -> dict[str, str]:
    """The vectors in which a native departs from the expected outcome."""
    found = {}
    for operation, file in files.items():
        for vector in file["vectors"]:
            made = vector.get("native", {}).get(native, "agrees")
            if made not in ("agrees", "unclaimed"):
                found[f"{operation}/{vector['id']}"] = reason(operation, native, vector, made)
    return found


def reason(operation: str, native: str, vector: Json, made: Json) -> str:
    """The departure that lists the vector's heading, else the most likely of its flags."""
    _, on, backend = native.partition("@")
    natives = [name for name in BY_NAME[operation].natives if not on or f"[{backend}]" in name]
    for name, departure in DEPARTURE_FLAGS.items():
        if any(vector["heading"] in CASES[departure.key].get(listed, ()) for listed in natives):
            return f"{name}: {departure.native}"
    if lost := _lost(vector, made):
        return f"{lost[0]}: {FLAGS[lost[0]].explanation}"
    flags = [flag for flag in _CAUSES if flag in vector["flags"]]
    if "error" in made and "Dtypes" in flags and not {"WideArithmetic", "AnyNumber"} & set(flags):
        flags = ["Dtypes"]
    flags += [flag for flag in vector["flags"] if flag not in flags]
    for flag in flags:
        flagged = DEPARTURE_FLAGS.get(flag)
        if flagged is not None and any(listed in flagged.functions for listed in natives):
            return f"{flag}: {flagged.native}"
    return f"{flags[0]}: {FLAGS[flags[0]].explanation}" if flags else f"It departs from its formula: {vector['comment']}."


def _lost(vector: Json, made: Json) -> list[str]:
    """The flags for a dtype or a shape that differs from the gradient's."""
    pairs = zip(made.get("gradients", ()), vector["expected"][0].get("gradients", ()), strict=False)
    both = [(got, wanted) for got, wanted in pairs if got is not None and wanted is not None]
    lost = {"DtypeKept": "dtype", "ShapeKept": "shape"}
    return [flag for flag, what in lost.items() if any(got[what] != wanted[what] for got, wanted in both)]


def stored(native: str) -> dict[str, dict[str, str]]:
    path = path_of(native)
    found: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def checks_of(native: str, operations: Mapping[str, Json]) -> set[str]:
    """The checks that failed in an earlier recording."""
    cases = stored(native).get(pattern_of(native), {})
    return cases.keys() & {f"{operation}/{name}" for operation in operations for name in CHECKS}


def check_reason(case: str) -> str:
    """Why natives fail a check: its departure. The outcome of a run is not a reason, and differs by CPU."""
    check = CHECKS[case.rpartition("/")[2]]
    for name, departure in DEPARTURE_FLAGS.items():
        if departure.key == check.departure:
            return f"{name}: {departure.native}"
    return f"It lacks this property: {check.description}"


def text(xfails: Mapping[str, Mapping[str, str]]) -> str:
    return json.dumps({key: dict(sorted(xfails[key].items())) for key in sorted(xfails)}, indent=2, ensure_ascii=False) + "\n"
