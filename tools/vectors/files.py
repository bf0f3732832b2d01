"""The vector files: which vectors an operation has, as generated and as stored; and their text."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gradclip.conformance.load import Flag
from gradclip.core.rule import Scope
from vectors import build
from vectors.adapt import with_examples, with_parameters
from vectors.common import common
from vectors.flags import FLAGS
from vectors.recorded import recorded
from vectors.spec import Operation, Spec
from vectors.special import special
from vectors.values import by_value

Json = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "gradclip" / "conformance"
VECTORS = FOLDER / "vectors" / "v1"


def path_of(operation: Operation) -> Path:
    return VECTORS / f"{operation.name}.json"


def specs_of(operation: Operation) -> list[Spec]:
    if operation.by_value:
        return list(by_value(operation))
    shared = [*recorded(operation), *common(operation)]
    if operation.native.rule().relative_to is not None:
        shared = [with_parameters(spec) for spec in shared]
    if operation.native.rule().scope is Scope.EXAMPLE:
        shared = [with_examples(spec) for spec in shared]
    return [*shared, *special(operation)]


@functools.cache
def generated(operation: Operation) -> Json:
    """A file without recorded outcomes; do not modify it."""
    specs = specs_of(operation)
    repeated = [name for name, times in Counter(spec.id for spec in specs).items() if times > 1]
    if repeated:
        raise ValueError(f"{operation.name} has several vectors called {', '.join(repeated)}")
    vectors = [build.vector(operation, spec) for spec in specs]
    named = sorted({flag for vector in vectors for flag in vector["flags"]})
    return {
        "schema": "schema.json",
        "version": (stored(operation) or {}).get("version", "1.0.0"),
        "operation": operation.name,
        "formula": operation.text,
        "documentation": operation.native.link,
        "recorded_with": {},
        "flags": {name: explained(FLAGS[name]) for name in named},
        "vectors": vectors,
    }


def explained(flag: Flag) -> Json:
    """A flag as JSON."""
    links = {"links": list(flag.links)} if flag.links else {}
    return {"explanation": flag.explanation, "training": flag.training, **links}


def stored(operation: Operation) -> Json | None:
    """The stored file, if there is one."""
    path = path_of(operation)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def merged(operation: Operation) -> Json:
    """The generated file, with the recorded outcomes of the same calls."""
    return with_records(generated(operation), stored(operation))


def with_records(new: Json, old: Json | None) -> Json:
    """A generated file, with the recorded outcomes of the stored one's same calls."""
    old = old or {"recorded_with": {}, "vectors": []}
    recorded = {vector["id"]: vector for vector in old["vectors"]}
    vectors = []
    for vector in new["vectors"]:
        before = recorded.get(vector["id"], {})
        is_recorded = "native" in before and called(vector) == called(before)
        vectors.append({**vector, "native": before["native"]} if is_recorded else dict(vector))
    return {**new, "recorded_with": old["recorded_with"], "vectors": vectors}


def sourced(file: Json) -> Json:
    """A file in which outcomes without a formula come from the native."""
    vectors = []
    for vector in file["vectors"]:
        agreeing = [native for native, made in vector.get("native", {}).items() if made == "agrees"]
        if vector["source"]["kind"] == "convention" and agreeing:
            framework = agreeing[0].partition("@")[0]
            version = file["recorded_with"][agreeing[0]][framework]
            vector = {**vector, "source": {"kind": "recorded", "framework": framework, "version": version}}
        vectors.append(vector)
    return {**file, "vectors": vectors}


def called(vector: Json) -> Json:
    """The fields that determine a native's outcome of a vector, and whether it agrees."""
    names = ("gradients", "iterator", "parameters", "arguments", "expected", "ulp", "mesh", "shardings")
    return {name: vector[name] for name in names if name in vector}


# ---- as text: a few lines for each vector; the same vectors give the same bytes -------------------------------------------


def text(file: Json) -> str:
    """A whole file: its header with a field on each line, then the vectors."""
    head = [f"  {_key(name)}{_line(value)}," for name, value in file.items() if name not in ("vectors", "flags")]
    flags = ",\n".join(f"    {_key(name)}{_line(value)}" for name, value in file["flags"].items())
    vectors = ",\n".join(_vector(vector) for vector in file["vectors"])
    return "\n".join(["{", *head, f'  "flags": {{\n{flags}\n  }},', f'  "vectors": [\n{vectors}\n  ]', "}", ""])


def _vector(vector: Json) -> str:
    """A line each for the description, the call, the outcome and the natives."""
    groups: list[tuple[str, ...]] = [
        ("id", "comment", "heading"),
        ("flags", "needs"),
        ("gradients", "iterator"),
        ("parameters",),
        ("mesh", "shardings"),
        ("arguments",),
        ("result", "expected"),
        ("ulp", "source"),
        ("native",),
    ]
    lines = [_fields(vector, group) for group in groups]
    return "    {" + ",\n     ".join(line for line in lines if line) + "}"


def _fields(vector: Json, names: Iterable[str]) -> str:
    return ", ".join(_key(name) + _line(vector[name]) for name in names if name in vector)


def _key(name: str) -> str:
    return json.dumps(name) + ": "


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
