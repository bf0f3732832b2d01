"""The vector files: as generated, and as stored."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

from vectors import build, lists
from vectors.flags import FLAGS, Flag
from vectors.spec import Operation

Json = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "gradclip" / "conformance"
VECTORS = FOLDER / "vectors" / "v1"


def path_of(operation: Operation) -> Path:
    return VECTORS / f"{operation.name}.json"


@functools.cache
def generated(operation: Operation) -> Json:
    """A file without recorded outcomes; do not modify it."""
    specs = lists.specs(operation)
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
    names = ("gradients", "iterator", "parameters", "arguments", "expected", "ulp", "mesh", "held")
    return {name: vector[name] for name in names if name in vector}
