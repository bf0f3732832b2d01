"""The cases: the vectors of the files and the checks of the operations, in a fixed order."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradclip.conformance.checks import CHECKS
from gradclip.conformance.load import SHIPPED, VectorFile, VectorFileError, load_vectors
from gradclip.conformance.target import OPERATIONS, dialect_of, named_like

__all__ = ["Case", "Plan", "plan"]


@dataclass(frozen=True)
class Case:
    """One vector or one check, of one operation."""

    operation: str
    name: str
    kind: str  #: "vector" or "check"
    needs: tuple[str, ...]
    content: Any = field(compare=False, repr=False)  #: the :class:`Vector`, or the :class:`Check`
    allowed: str = ""  #: why a failure is accepted: the native of ``--like`` fails it too
    of_native: Case | None = field(default=None, compare=False, repr=False)  #: where the native's outcome is right too

    @property
    def id(self) -> str:
        """Its name in reports, selections and files of expected failures."""
        return f"{self.operation}/{self.name}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The subjects of a vector."""
        flags: tuple[str, ...] = self.content.flags if self.kind == "vector" else ()
        return flags


@dataclass
class Plan:
    """The cases of a run."""

    cases: list[Case] = field(default_factory=list)  #: the selected cases
    known: list[str] = field(default_factory=list)  #: the ids of all cases, selected or not
    operations: list[str] = field(default_factory=list)  #: the operations of the selected dialects
    files: dict[str, VectorFile] = field(default_factory=dict)  #: operation -> its usable vectors
    broken: list[tuple[str, str]] = field(default_factory=list)  #: operation (or "target"), and the problem with its vectors


def plan(
    dialects: Iterable[str] | None = None,
    select: str | Iterable[str] | None = None,
    vectors: str | Path | None = None,
    ranks: int = 0,
) -> Plan:
    """Find the cases.

    Args:
        dialects: dialects ("torch") or operations ("torch.clip_grad_norm_"); None is all.
        select: patterns of ids, as for files ("torch.*/E*"); a pattern without a wildcard is an id or a part of
            ids.
        vectors: a vector file, or a folder of them, instead of the suite's own.
        ranks: the number of ranks, for the vectors on several ranks; 0 for all others, and the checks.

    Raises:
        ValueError: for an unknown dialect.
    """
    made = Plan(operations=_operations(dialects))
    _read(made, vectors or (SHIPPED / "ranks" if ranks else None))
    cases = list(_on_ranks(made) if ranks else _all(made))
    made.known = [case.id for case in cases]
    wanted = _selected(made.known, select)
    made.cases = [case for case in cases if case.operation in made.operations and case.id in wanted]
    if ranks:
        made.cases = [case for case in made.cases if math.prod(case.content.json["mesh"]) == ranks]
    return made


def _operations(dialects: Iterable[str] | None) -> list[str]:
    if dialects is None:
        return list(OPERATIONS)
    what = "There is no dialect or operation of this name."
    known = [*dict.fromkeys(map(dialect_of, OPERATIONS)), *OPERATIONS]
    named = [named_like(name, known, what, "dialect") for name in _listed(dialects)]
    return [operation for operation in OPERATIONS if operation in named or dialect_of(operation) in named]


def _selected(known: list[str], select: str | Iterable[str] | None) -> set[str]:
    if select is None:
        return set(known)
    wanted = {pattern for pattern in _listed(select) if pattern in known}
    for pattern in _listed(select):
        if pattern not in wanted:
            wanted.update(fnmatch.filter(known, pattern if set(pattern) & set("*?[") else f"*{pattern}*"))
    return wanted


def _listed(names: str | Iterable[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _all(made: Plan) -> Iterator[Case]:
    for operation in OPERATIONS:
        if operation in made.files:
            for vector in made.files[operation].vectors:
                yield Case(operation, vector.json["id"], "vector", vector.needs, vector)
        for name, check in CHECKS.items():
            if check.operations(operation):
                yield Case(operation, name, "check", tuple(check.needs), check)


def _on_ranks(made: Plan) -> Iterator[Case]:
    for operation, file in made.files.items():
        for vector in file.vectors:
            if "mesh" in vector.json:
                yield Case(operation, vector.json["id"], "vector", vector.needs, vector)


def _read(made: Plan, path: str | Path | None) -> None:
    """Put the vectors of each operation into the plan, and its unusable files."""
    try:
        files = load_vectors(path)
    except VectorFileError as error:
        files = error.files
        for problem in error.problems:
            name = Path(problem.path).stem
            made.broken.append((name if name in OPERATIONS else "target", str(problem)))
    made.files = {file.operation: file for file in files}
