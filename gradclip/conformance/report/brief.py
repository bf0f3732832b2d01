"""The first screen of a long report: the verdicts, what holds, what fails in words, and the three most telling cases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gradclip.conformance.report import text
from gradclip.conformance.report.seen import RAISED
from gradclip.conformance.report.text import Line
from gradclip.conformance.report.view import MARKS, Case, Cell, Group, View

__all__ = ["MOST_LINES", "screen"]

MOST_LINES = 40
_TARGETS, _OPERATIONS, _CASES = 6, 4, 3  # the most that are shown of each
_WRONG = ("fail", "unexpected")


def screen(view: View, width: int) -> list[Line]:
    """At most ``MOST_LINES`` lines; a line that is too long is cut."""
    statuses = next((one for one in (_WRONG, *((name,) for name in text.ACCEPTED)) if view.kinds(*one)), _WRONG)
    head = [(f"gradclip conformance {view.report.suite_version}", "bold"), *_verdicts(view, width)]
    alone = len(view.targets) == 1
    cases = [line for one in _telling(view, statuses)[:_CASES] for line in _case(*one, width, alone)]
    parts = [_holds(view, width), [], [("The most telling cases", "bold"), *cases] if cases else []]
    foot: list[Line] = [("--all shows every operation and each kind of failure.", "")]
    room = MOST_LINES - len(head) - len(foot) - sum(map(len, parts)) - 2 - sum(map(bool, parts))
    parts[1] = _kinds(view, statuses, width, room)
    return [*head, *(line for part in (*parts, foot) if part for line in (("", ""), *part))]


def _verdicts(view: View, width: int) -> Iterator[Line]:
    """A line for each target, those that do not conform first."""
    verdicts = sorted(text.verdicts(view), key=lambda one: one[0][:1] != MARKS["fail"])
    for said, style in verdicts[:_TARGETS]:
        yield _cut(said, width), style
    if len(verdicts) > _TARGETS:
        yield f"and {len(verdicts) - _TARGETS} more targets", ""
    if len(view.targets) == 1:
        yield _cut(f"  {view.made_of(view.targets[0])}", width), "dim"


def _holds(view: View, width: int) -> list[Line]:
    """The operations with the most passed cases."""
    cells = sorted((cell for cell in view.cells.values() if cell.counts["pass"]), key=lambda cell: -cell.counts["pass"])
    shown: list[Line] = [("What holds", "bold")]
    for cell in cells[:_OPERATIONS]:
        target = f"{cell.target}: " if len(view.targets) > 1 else ""
        count = f"{cell.counts['pass']:,} of {cell.claimed:,} cases"
        shown.append((_cut(f"  {MARKS['pass']} {target}{cell.operation}: {count}", width), "green"))
    rest = cells[_OPERATIONS:]
    if rest:
        passed, claimed = (sum(numbers) for numbers in zip(*((one.counts["pass"], one.claimed) for one in rest), strict=True))
        shown.append((f"  and {passed:,} of {claimed:,} cases of {len(rest)} more", ""))
    return shown if cells else []


def _kinds(view: View, statuses: Sequence[str], width: int, room: int) -> list[Line]:
    """As many kinds of failures as there is room for, each in two lines at most."""
    kinds = view.kinds(*statuses)
    lines: list[Line] = [("What fails" if statuses is _WRONG else text.ACCEPTED[statuses[0]], "bold")]
    for i, kind in enumerate(kinds):
        found = list(text.kind_lines(kind, view, width))
        if len(found) > 2:
            found = [found[0], (_cut(f"{found[1][0]} …", width, always=True), found[1][1])]
        left = len(kinds) - i - 1
        if len(lines) + len(found) + bool(left) > room:
            lines.append((f"  and {left + 1} more kinds", ""))
            break
        lines += found
    return lines if kinds else []


def _telling(view: View, statuses: Sequence[str]) -> list[tuple[Cell, Group, Case]]:
    """The failed cases, the most telling first: one of each kind in turn.

    A case without a flag is plain arithmetic that is wrong: it comes first. Then cases with a finite right result, then the
    kinds with the most cases. Of a kind the case with the shortest call comes first.
    """
    kinds: dict[object, list[tuple[Cell, Group, Case]]] = {}
    for cell in view.cells.values():
        for group in cell.groups:
            if group.status in statuses:
                key = cell.target, group.cause.name if group.cause else tuple(effect.name for effect in group.effects)
                few = group.cases[:1] if group.cause and group.cause.name == RAISED else group.cases
                kinds.setdefault(key, []).extend((cell, group, case) for case in few)
    for found in kinds.values():
        found.sort(key=lambda one: (not one[2].call, len(one[2].call)))
    turns = sorted(kinds.values(), key=lambda found: (bool(found[0][1].effects), not _finite(found[0][2]), -len(found)))
    most = max(map(len, turns), default=0)
    return [found[i] for i in range(most) for found in turns if i < len(found)]


def _finite(case: Case) -> bool:
    """Whether the right result of a call is finite numbers: no error, no NaN, no infinity."""
    return bool(case.call) and any(not re.search(r"\b(an error|nan|inf)\b", expected) for expected in case.expected)


def _case(cell: Cell, group: Group, case: Case, width: int, alone: bool) -> Iterator[Line]:
    """At most five lines: the case, the call, what is right, what came, and what that does to a training."""
    title = f": {case.title}" if case.title else ""
    target = "" if alone else f"{cell.target}: "
    yield _cut(f"  {MARKS[group.status]} {target}{cell.operation}/{case.name}{title}", width), text.STYLES[group.status]
    training = next(filter(None, (effect.training for effect in group.effects)), "")
    said = (
        ("called", case.call),
        ("expected", next(iter(case.expected), "")),
        ("got", case.got or case.message),
        ("training", training),
    )
    for label, what in said:
        if what:
            yield _cut(f"    {label:<10}{' '.join(what.split())}", width), ""


def _cut(line: str, width: int, always: bool = False) -> str:
    """The line, shortened where it is too long."""
    if len(line) <= width and not always:
        return line
    return f"{line.removesuffix(' …')[: width - 2].rstrip()} …"
