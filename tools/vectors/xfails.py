"""The known failures of natives, with reasons: the recorded vectors, and the checks that failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gradclip.conformance.array import Array, rounded
from gradclip.conformance.checks import CHECKS
from gradclip.conformance.compare import ulps
from gradclip.natives import departing
from vectors import ranks
from vectors.build import HALVES
from vectors.departed import CASES
from vectors.files import FOLDER
from vectors.flags import DEPARTURE_FLAGS, FLAGS, RANK_FLAGS
from vectors.operations import BY_NAME

Json = dict[str, Any]
XFAILS = FOLDER / "xfails"
#: causes of a difference, before the vector's other flags
_CAUSES = (
    *("Twice", "Iterator", "NegativeLimit", "InfiniteLimit", "ZeroLimit", "Integers", "Sparse", "AccurateNorm", "FiniteNorm"),
    *("WideNorm", "MixedDtypes", "AnyNumber", "NothingToClip", "WideArithmetic", "ShapeKept", "DtypeKept", "LimitType"),
    *("Dtypes", "Unclipped"),
)
#: causes of an error or a deadlock on several ranks
_CAUSES_ON_RANKS = ("MissingShard", "PlainBeside", "SeveralMeshes")


def path_of(native: str) -> Any:
    return XFAILS / f"native-{native.partition('@')[0]}.json"


def pattern_of(native: str) -> str:
    """The pattern of a native's target names: ``torch 2.13.0``, ``keras 3.15.1 on jax``."""
    if native == ranks.NATIVE:
        return "torch.nn.utils.clip_grad_norm_"
    framework, _, backend = native.partition("@")
    return f"{framework} * on {backend}" if backend else f"{framework} *"


def vector_reasons(native: str, files: Mapping[str, Json]) -> dict[str, str]:
    """The vectors in which a native departs from the expected outcome."""
    found = {}
    for file in files.values():
        operation = file["operation"]
        for vector in file["vectors"]:
            made = vector.get("native", {}).get(native, "agrees")
            if made not in ("agrees", "unclaimed"):
                found[f"{operation}/{vector['id']}"] = reason(operation, native, vector, made)
    return found


def reason(operation: str, native: str, vector: Json, made: Json) -> str:
    """The departure that lists the vector's heading, else the most likely of its flags."""
    variant = variant_of(operation, native)
    for name, departure in DEPARTURE_FLAGS.items():
        if vector["heading"] in CASES[departure.key].get(variant, ()):
            return f"{name}: {departure.native}"
    if native == ranks.NATIVE:  # its outcome is that of one rank, and not gathered
        told = [flag for flag in _CAUSES_ON_RANKS if "error" in made and flag in vector["flags"]]
        if told:
            return f"{told[0]}: {RANK_FLAGS[told[0]].explanation}"
    elif _is_narrower(vector, made):
        return f"WideNorm: {DEPARTURE_FLAGS['WideNorm'].native}"
    elif lost := _lost(vector, made):
        return f"{lost[0]}: {FLAGS[lost[0]].explanation}"
    flags = [flag for flag in _CAUSES if flag in vector["flags"] and (flag != "WideNorm" or "error" not in made)]
    if "error" in made and "Dtypes" in flags and not {"WideArithmetic", "AnyNumber"} & set(flags):
        flags = ["Dtypes"]
    flags += [flag for flag in vector["flags"] if flag not in flags]
    for flag in flags:
        flagged = DEPARTURE_FLAGS.get(flag)
        if flagged is not None and _departs(operation, native, flagged.key):
            return f"{flag}: {flagged.native}"
    return f"{flags[0]}: {FLAGS[flags[0]].explanation}" if flags else f"It departs from its formula: {vector['comment']}."


def variant_of(operation: str, native: str) -> str:
    """The name of a recorded native among the departed cases: "keras[jax] clipnorm"."""
    made = BY_NAME[operation]
    return made.natives[made.recorders.index("torch" if native == ranks.NATIVE else native)]


def _departs(operation: str, native: str, key: str) -> bool:
    return variant_of(operation, native) in departing(key)


def _is_narrower(vector: Json, made: Json) -> bool:
    """Whether only the norm differs, and only by a dtype that is too narrow; of a long gradient the first values decide."""
    right = vector["expected"][0]
    n, wanted = made.get("norm"), right.get("norm")
    if n is None or wanted is None or n["dtype"] not in HALVES or wanted["dtype"] in HALVES:
        return False
    if ulps(float.fromhex(n["value"]), rounded(float.fromhex(wanted["value"]), n["dtype"]), n["dtype"]) > 1:
        return False
    pairs = [(g, wanted) for g, wanted in zip(made["gradients"], right["gradients"], strict=True) if g is not None]
    both = [(Array.from_json(g), Array.from_json(wanted)) for g, wanted in pairs]
    return all(ulps(x, y, b.dtype) <= vector["ulp"] for a, b in both for x, y in zip(a.values, b.values, strict=False))


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


def check_reason(native: str, case: str) -> str:
    """Why a native fails a check: its departure, if it has it. The outcome of a run is not a reason, and differs by CPU."""
    operation, _, check_name = case.partition("/")
    check = CHECKS[check_name]
    for name, departure in DEPARTURE_FLAGS.items():
        if departure.key == check.departure and _departs(operation, native, departure.key):
            return f"{name}: {departure.native}"
    return f"It lacks this property: {check.description}"


def text(xfails: Mapping[str, Mapping[str, str]]) -> str:
    return json.dumps({key: dict(sorted(xfails[key].items())) for key in sorted(xfails)}, indent=2, ensure_ascii=False) + "\n"
