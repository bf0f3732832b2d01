"""A report for display, as text or HTML: for each target and operation the counts, and the cases explained."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradclip.conformance.load import Vector, VectorFile
from gradclip.conformance.ranks.fits import FITS
from gradclip.conformance.report import words
from gradclip.conformance.report.causes import causes
from gradclip.conformance.report.seen import RAISED, Seen, seen
from gradclip.conformance.result import REASONS, STATUSES, Report, Result
from gradclip.core.errors import counted

__all__ = ["MARKS", "Case", "Cell", "Effect", "Group", "Kind", "View", "explained", "view"]

#: status -> a sign without colour
MARKS: Mapping[str, str] = {"pass": "✓", "native": "≈", "fail": "✗", "expected": "~", "unexpected": "!", "unclaimed": "–"}
_MOSTLY = 0.75  #: so much of the failures is nearly all
_TOLD = ("fail", "unexpected", "expected", "native")  #: the statuses whose cases are shown one by one, the worst first


@dataclass(frozen=True)
class Effect:
    """The explanation of a flag or a check."""

    name: str
    explanation: str = ""
    training: str = ""  #: what a failure would do to training
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One result, explained."""

    name: str  #: without its operation
    title: str
    call: str  #: "" for a check, and without the vector
    expected: tuple[str, ...]  #: any of them is conformant
    got: str
    off: str  #: the distance
    message: str


@dataclass(frozen=True)
class Group:
    """The cases of one status and cause that have the same flags, or are of one check; or that raise the same exception."""

    status: str
    effects: tuple[Effect, ...]
    cases: tuple[Case, ...]
    declared: str = ""  #: the reason that was declared for all of them; with one case it is in its message
    cause: Seen | None = None  #: what their outputs show


@dataclass
class Cell:
    """The results of a target in an operation."""

    target: str
    operation: str
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    groups: list[Group] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    unclaimed: dict[str, list[str]] = field(default_factory=dict)  #: unclaimed feature -> the cases that need it

    @property
    def status(self) -> str:
        """The worst status."""
        return next((status for status in (*_TOLD, "pass") if self.counts[status]), "unclaimed")

    @property
    def claimed(self) -> int:
        return sum(self.counts.values()) - self.counts["unclaimed"]


@dataclass(frozen=True)
class Kind:
    """Failures of one kind in one target: a line at the start of a report."""

    target: str
    status: str
    names: tuple[str, ...]  #: of the cause, of the flags, or of the check; of the first case where nothing explains it
    explanation: str
    count: int  #: of the cases
    operations: tuple[str, ...]
    example: Case  #: the first


@dataclass(frozen=True)
class View:
    """A report, laid out."""

    report: Report
    operations: tuple[str, ...]
    targets: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]  #: (target, operation) -> its cell, where there are results
    files: Mapping[str, VectorFile]  #: operation -> its vectors, where they are at hand

    def of_target(self, target: str) -> Iterator[Cell]:
        """Its cells, in the order of the operations."""
        yield from (self.cells[target, operation] for operation in self.operations if (target, operation) in self.cells)

    def kinds(self, *statuses: str) -> list[Kind]:
        """The cases with one of these statuses, by target and cause, or by subject; the most frequent first."""
        found: dict[tuple[str, str, tuple[str, ...]], list[tuple[Cell, Group]]] = {}
        for cell in self.cells.values():
            for group in cell.groups:
                if group.status in statuses:
                    key = cell.target, group.status, _names(group)
                    found.setdefault(key, []).append((cell, group))
        kinds = [_kind(*key, members) for key, members in found.items()]
        return sorted(kinds, key=lambda kind: (statuses.index(kind.status), self.targets.index(kind.target), -kind.count))

    def main_kinds(self, *statuses: str) -> list[Kind]:
        """The kinds; of a target that raises nearly everywhere only its exceptions: the rest follows from them."""
        raising = {target for target in self.targets if self.nearly_all(target)}
        return [kind for kind in self.kinds(*statuses) if kind.target not in raising or kind.names[0] == RAISED]

    def nearly_all(self, target: str) -> tuple[str, int] | None:
        """The exceptions that are nearly all that is wrong with a target, and the number of their cases."""
        counts = self.report.counts(target)
        claimed = sum(counts.values()) - counts["unclaimed"]
        raised = [kind for kind in self.kinds("fail") if kind.target == target and kind.names[0] == RAISED]
        count = sum(kind.count for kind in raised)
        if count < 2 or count < max(_MOSTLY * counts["fail"], claimed / 2):
            return None
        others = f", and {counted(len(raised) - 1, 'other exception')}" if len(raised) > 1 else ""
        return f"{raised[0].explanation}{others}", count

    def made_of(self, target: str) -> str:
        """Its versions, its device, and how long it took."""
        entry = self.report.targets.get(target, {})
        parts = [f"{name} {version}" for name, version in entry.get("versions", {}).items()]
        parts += [str(entry["device"])] if entry.get("device") else []
        parts += [f"{entry['seconds']:.1f} s"] if "seconds" in entry else []
        return ", ".join(parts)

    @property
    def vector_version(self) -> str:
        """The version of most vectors, and the operations with another one."""
        versions = self.report.vector_versions
        if not versions:
            return "none"
        ((most, _),) = Counter(versions.values()).most_common(1)
        others = [f"{operation} {version}" for operation, version in versions.items() if version != most]
        return f"{most} ({', '.join(others)})" if others else most


def view(report: Report, files: Iterable[VectorFile], checks: Mapping[str, Any]) -> View:
    """Lay a report out.

    Args:
        report: any report; cases that neither ``files`` nor ``checks`` know are shown with what their results say.
        files: the vectors.
        checks: name -> a check: an object with a description, and with what its failure would do to training.
    """
    by_operation = {file.operation: file for file in files}
    cells: dict[tuple[str, str], Cell] = {}
    told: dict[tuple[str, str], list[Result]] = {}
    for result in report.results:
        key = result.target, result.operation
        cell = cells.setdefault(key, Cell(*key))
        cell.counts[result.status] += 1
        if result.status == "pass":
            cell.passed.append(_short(result))
        elif result.status == "unclaimed":
            cell.unclaimed.setdefault(result.message or ", ".join(result.needs), []).append(_short(result))
        else:
            told.setdefault(key, []).append(result)
    for key, results in told.items():
        file = by_operation.get(key[1])
        on_ranks = file is not None and any("mesh" in vector.json for vector in file.vectors)
        blamed = causes([result for result in report.results if (result.target, result.operation) == key]) if on_ranks else {}
        cells[key].groups.extend(_groups(results, file, checks, blamed))
    operations = dict.fromkeys((*report.vector_versions, *(result.operation for result in report.results)))
    shown = tuple(name for name in operations if any(operation == name for _, operation in cells))
    targets = dict.fromkeys((*report.targets, *(target for target, _ in cells)))
    return View(report, shown, tuple(targets), cells, by_operation)


def _names(group: Group) -> tuple[str, ...]:
    """What the group counts under."""
    if group.cause is None:
        return tuple(effect.name for effect in group.effects)
    return (group.cause.name, _plain(group.cause.explanation)) if group.cause.name == RAISED else (group.cause.name,)


def _plain(error: str) -> str:
    """The text of an exception without what differs from case to case: its numbers, and what is in brackets."""
    return re.sub(r"\d+", "0", re.sub(r"[\[({].*[\])}]", "()", error, flags=re.DOTALL))


def _kind(target: str, status: str, names: tuple[str, ...], members: Sequence[tuple[Cell, Group]]) -> Kind:
    cause = members[0][1].cause
    said = [cause.explanation] if cause else [effect.explanation for _, group in members for effect in group.effects]
    names = (cause.name,) if cause else names
    explanation = next(filter(None, said), "") or members[0][1].cases[0].message
    count = sum(len(group.cases) for _, group in members)
    operations = tuple(dict.fromkeys(cell.operation for cell, _ in members))
    names = names or (f"{operations[0]}/{members[0][1].cases[0].name}",)
    return Kind(target, status, names, explanation, count, operations, members[0][1].cases[0])


def explained(result: Result, file: VectorFile | None, checks: Mapping[str, Any]) -> Group:
    """One result; ``file``: the vectors of its operation."""
    return next(_groups([result], file, checks))


def _groups(
    results: Sequence[Result], file: VectorFile | None, checks: Mapping[str, Any], blamed: Mapping[str, str] | None = None
) -> Iterator[Group]:
    """Results of one target and operation, by status, the worst first, and by subject; it explains each subject once.

    Args:
        blamed: the one subject of a case; by default all of its flags.
    """
    vectors = {vector.id: vector for vector in (file.vectors if file else ())}
    groups: dict[tuple[str, str, tuple[str, ...], str], list[Result]] = {}
    shown: dict[str, Seen | None] = {}
    for result in results:
        blame = (blamed or {}).get(result.case)
        about, kind = _about(result, file) if blame is None else (blame,), result.kind
        cause = seen(result, vectors.get(result.case)) if result.status == "fail" and blame is None else None
        name = "" if cause is None else cause.name
        if name == RAISED and cause is not None:  # whatever the cases are about
            about, kind, name = (), "", _plain(cause.explanation)
        shown.setdefault(name, cause)
        groups.setdefault((result.status, kind, about, name), []).append(result)
    said: set[Effect] = set()
    for (status, kind, about, name), members in sorted(groups.items(), key=lambda item: (*_TOLD, "pass").index(item[0][0])):
        effects = [_effect(kind, name, file, checks) for name in about]
        shared = _shared_reason(members) if status in ("expected", "native") else ""
        cases = tuple(_case(result, vectors.get(result.case), shared) for result in members)
        once = tuple(Effect(one.name) if one in said else one for one in effects)
        yield Group(status, once, cases, shared.removeprefix(f"{about[0]}: ") if len(about) == 1 else shared, shown[name])
        said.update(effects)


def _about(result: Result, file: VectorFile | None) -> tuple[str, ...]:
    """Its flags or its check; for a declared failure the flag at the start of its reason, if there is one."""
    if result.kind == "check":
        return (_short(result),)
    cause = result.message.partition(":")[0] if result.status == "expected" else ""
    return (cause,) if file and cause in file.flags else result.flags


def _shared_reason(results: Sequence[Result]) -> str:
    """The common start of the messages of several declared failures: the reason, up to a colon."""
    if len(results) == 1:
        return ""
    messages = sorted(result.message for result in results)  # the common start of first and last is common to all
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(messages[0], messages[-1], strict=False))
    return "".join(character for character, _ in pairs).rpartition(": ")[0]


def _short(result: Result) -> str:
    return result.case.removeprefix(f"{result.operation}/")


def _effect(kind: str, name: str, file: VectorFile | None, checks: Mapping[str, Any]) -> Effect:
    if kind == "check":
        check = checks.get(name)
        return Effect(name) if check is None else Effect(name, check.description, check.training)
    flag = file.flags.get(name) if file else None
    if flag is None and name in FITS:
        return Effect(name, FITS[name].explanation, FITS[name].training)
    return Effect(name) if flag is None else Effect(name, flag.explanation, flag.training, flag.links)


def _case(result: Result, vector: Vector | None, shared: str) -> Case:
    expected = result.expected if isinstance(result.expected, list) else [] if result.expected is None else [result.expected]
    message = result.message or ("" if result.status == "unexpected" else REASONS.get(result.reason, result.reason))
    message = message.removeprefix(f"{shared}: ") if shared else message
    raised = result.got["error"] if isinstance(result.got, Mapping) and "error" in result.got else ""
    return Case(
        name=_short(result),
        title=vector.comment if vector else "",
        call=words.call(result.operation, vector.json) if vector else "",
        expected=tuple(words.outcome(one) + (f": {one['why']}" if _has_why(one) else "") for one in expected),
        got="" if result.got is None else words.outcome(result.got),
        off="" if "ulp" in message else words.distance(result.ulps),  # the message has it already
        message="" if raised and message == f"raised {raised}" else message,
    )


def _has_why(outcome: Any) -> bool:
    return isinstance(outcome, Mapping) and bool(outcome.get("why"))
