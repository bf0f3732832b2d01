"""Vector files as text: a few lines for each vector; the same vectors give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


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
        ("mesh", "held"),
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
