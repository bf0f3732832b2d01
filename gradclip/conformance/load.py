"""Reading vector files: gradclip's own, and a user's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradclip.conformance.array import Array, number_from_json
from gradclip.conformance.check_vectors import SHIPPED, validators, wrong_with_file, wrong_with_vector
from gradclip.conformance.compare import Outcome
from gradclip.core.errors import GradclipError

__all__ = [
    "SHIPPED",
    "Flag",
    "NumpyNumber",
    "Problem",
    "SameAs",
    "Vector",
    "VectorFile",
    "VectorFileError",
    "load_vectors",
]

_MOST_SHOWN = 20  # the most problems in one message


@dataclass(frozen=True)
class SameAs:
    """A gradient that is the same object as another."""

    place: int


@dataclass(frozen=True)
class NumpyNumber:
    """An argument that is a NumPy number."""

    dtype: str
    value: Any


@dataclass(frozen=True)
class Flag:
    """A subject of a vector."""

    explanation: str  #: what must hold
    training: str  #: the effect on training if it does not hold
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Vector:
    """One call with its expected outcome. Arrays are decoded on demand: some have a million elements."""

    operation: str
    json: Mapping[str, Any] = field(repr=False)  #: the JSON in the file

    @property
    def id(self) -> str:
        """The name of the case, ``torch.clip_grad_norm_/E4``."""
        return f"{self.operation}/{self.json['id']}"

    @property
    def comment(self) -> str:
        return str(self.json["comment"])

    @property
    def heading(self) -> str | None:
        """The recorded behaviour of the natives that it tests."""
        heading: str | None = self.json["heading"]
        return heading

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(self.json["flags"])

    @property
    def needs(self) -> tuple[str, ...]:
        """The features that a target must claim, or the vector is unclaimed."""
        return tuple(self.json["needs"])

    @property
    def iterator(self) -> bool:
        """Whether the gradients come in an iterator."""
        return bool(self.json.get("iterator", False))

    @property
    def ulp(self) -> int:
        return int(self.json["ulp"])

    @property
    def source(self) -> Mapping[str, str]:
        source: Mapping[str, str] = self.json["source"]
        return source

    @property
    def native(self) -> Mapping[str, Any]:
        """For each recorded native "agrees", "unclaimed" or the JSON of its outcome."""
        native: Mapping[str, Any] = self.json.get("native", {})
        return native

    @property
    def gradients(self) -> tuple[Array | SameAs | None, ...]:
        return tuple(_gradient(gradient) for gradient in self.json["gradients"])

    @property
    def parameters(self) -> tuple[Array | None, ...] | None:
        """One for each gradient, for the operation whose limit is relative to them."""
        given = self.json.get("parameters")
        return None if given is None else tuple(None if array is None else Array.from_json(array) for array in given)

    @property
    def arguments(self) -> dict[str, Any]:
        """By the native's names: numbers, text, truth values, None, lists of ints, :class:`Array`, :class:`NumpyNumber`."""
        return {name: _argument(value) for name, value in self.json["arguments"].items()}

    @property
    def expected(self) -> tuple[Outcome, ...]:
        """The right outcomes."""
        return tuple(Outcome.from_json(outcome) for outcome in self.json["expected"])


@dataclass(frozen=True)
class VectorFile:
    """The vectors of one operation."""

    path: str
    operation: str
    version: str  #: the semantic version of the vectors
    formula: str
    documentation: str
    recorded_with: Mapping[str, Mapping[str, str]]  #: native -> its versions
    flags: Mapping[str, Flag]
    vectors: tuple[Vector, ...]


@dataclass(frozen=True)
class Problem:
    """One problem of a vector file."""

    path: str
    vector: str | None  #: the vector's id, or its place in the file; None for the file itself
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {'' if self.vector is None else f'vector {self.vector}: '}{self.message}"


class VectorFileError(GradclipError, ValueError):
    """Vector files with problems; ``files`` has the usable part."""

    problems: tuple[Problem, ...] = ()
    files: tuple[VectorFile, ...] = ()


def load_vectors(path: str | Path | None = None, *, validate: bool | None = None) -> tuple[VectorFile, ...]:
    """Read vector files.

    Args:
        path: one file, or a folder whose ``*.json`` files are read; None for gradclip's own.
        validate: whether to check them against the schema, which needs jsonschema; if None, only a user's files are
            checked.

    Returns:
        One entry for each file, by name.

    Raises:
        VectorFileError: for files with problems, with every problem in ``problems`` and the usable vectors
            in ``files``.
        ModuleNotFoundError: if jsonschema is needed and not installed.

    >>> from gradclip.conformance import load_vectors
    >>> load_vectors()[0].operation
    'keras.clipnorm'
    """
    folder = SHIPPED if path is None else Path(path)
    paths = sorted(p for p in folder.glob("*.json") if p.name != "schema.json") if folder.is_dir() else [folder]
    problems: list[Problem] = []
    if not paths:
        problems.append(Problem(str(folder), None, "There are no vector files (*.json) in this folder."))
    schemas = validators() if (not folder.is_relative_to(SHIPPED) if validate is None else validate) else None
    files = [file for p in paths if (file := _file(p, schemas, problems)) is not None]
    if problems:
        shown = "\n".join(map(str, problems[:_MOST_SHOWN]))
        more = f"\nand {len(problems) - _MOST_SHOWN} more" if len(problems) > _MOST_SHOWN else ""
        error = VectorFileError(
            "Vector files cannot be used.", shown + more, "the schema is gradclip/conformance/vectors/v1/schema.json."
        )
        error.problems, error.files = tuple(problems), tuple(files)
        raise error
    return tuple(files)


def _file(path: Path, schemas: tuple[Any, Any] | None, problems: list[Problem]) -> VectorFile | None:
    """One file with its usable vectors; None if it is not a vector file."""
    name = str(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(Problem(name, None, f"It cannot be read: {error.strerror or error}."))
        return None
    except (ValueError, RecursionError) as error:
        problems.append(Problem(name, None, f"It is not JSON: {error}."))
        return None
    wrong = list(wrong_with_file(content, schemas))
    if wrong:
        problems += [Problem(name, None, message) for message in wrong]
        return None
    vectors, seen = [], set()
    for place, vector in enumerate(content["vectors"]):
        key = vector.get("id") if isinstance(vector, dict) else None
        label = key if isinstance(key, str) else f"number {place}"
        wrong = list(wrong_with_vector(vector, content, schemas))
        if not wrong and key in seen:
            wrong = ["Another vector of this file has this id."]
        seen.add(key if isinstance(key, str) else None)
        problems += [Problem(name, label, message) for message in wrong]
        if not wrong:
            vectors.append(Vector(content["operation"], vector))
    flags = {
        key: Flag(flag["explanation"], flag["training"], tuple(flag.get("links", ()))) for key, flag in content["flags"].items()
    }
    own = {key: content[key] for key in ("operation", "version", "formula", "documentation", "recorded_with")}
    return VectorFile(path=name, flags=flags, vectors=tuple(vectors), **own)


def _gradient(gradient: Any) -> Array | SameAs | None:
    if gradient is None:
        return None
    return SameAs(gradient["same_as"]) if "same_as" in gradient else Array.from_json(gradient)


def _argument(value: Any) -> Any:
    if value is None:
        return None
    if "array" in value:
        return Array.from_json(value["array"])
    if "numpy" in value:
        return NumpyNumber(value["numpy"], number_from_json(value["value"]))
    kind, given = next(iter(value.items()))
    return number_from_json(given) if kind == "float" else list(given) if kind == "ints" else given
