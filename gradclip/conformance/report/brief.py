"""The first screen of a long report: the verdicts, what holds, what fails in words, and the three most telling cases."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from gradclip.conformance.report import text
from gradclip.conformance.report.seen import RAISED, TRAINING
from gradclip.conformance.report.text import Line
from gradclip.conformance.report.view import MARKS, Case, Cell, Group, View
from gradclip.core.errors import counted

__all__ = ["MOST_LINES", "screen"]

MOST_LINES = 40
_TARGETS, _OPERATIONS, _CASES = 6, 4, 3  # the most that are shown of each
_SMALL, _LARGE, _DIGITS = 1e-2, 1e3, 4  #: of ordinary numbers: the least, the greatest, and the most characters
_ODDEST = 2
_WRONG = ("fail", "unexpected")


def screen(view: View, width: int) -> list[Line]:
    """At most ``MOST_LINES`` lines; numbers and names that are too long are cut."""
    statuses = next((one for one in (_WRONG, *((name,) for name in text.ACCEPTED)) if view.kinds(*one)), _WRONG)
    head = [(f"gradclip conformance {view.report.suite_version}", "bold"), *_verdicts(view, width)]
    alone = len(view.targets) == 1
    telling = _telling(view, statuses)[:_CASES]
    cases = [line for one in telling for line in _case(*one, _training(view, one[1]), width, alone)]
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
    kinds = view.main_kinds(*statuses)
    hidden = len(view.kinds(*statuses)) - len(kinds)
    lines: list[Line] = [("What fails" if statuses is _WRONG else text.ACCEPTED[statuses[0]], "bold")]
    for i, kind in enumerate(kinds):
        found = list(text.kind_lines(kind, view, width))
        if len(found) > 2:
            found = [found[0], (_cut(f"{found[1][0]} …", width, always=True), found[1][1])]
        left = len(kinds) + hidden - i - 1
        if len(lines) + len(found) + bool(left) > room:
            lines.append((f"  and {counted(left + 1, 'more kind')}", ""))
            break
        lines += found
    else:
        lines += [(f"  and {counted(hidden, 'more kind')}", "")] * bool(hidden)
    return lines if kinds else []


def _telling(view: View, statuses: Sequence[str]) -> list[tuple[Cell, Group, Case]]:
    """The failed cases, the most telling first: one of each kind in turn.

    A case with ordinary numbers and few flags is plain arithmetic that is wrong: it comes first. Then zeros, infinities and
    NaN, then extreme numbers; of equally plain ones those with a finite right result, then the kinds with the most cases. Of
    a kind the plainest case with the shortest call comes first.
    """
    kinds: dict[object, list[tuple[Cell, Group, Case]]] = {}
    for cell in view.cells.values():
        for group in cell.groups:
            if group.status in statuses:
                key = cell.target, group.cause.name if group.cause else tuple(effect.name for effect in group.effects)
                few = group.cases[:1] if group.cause and group.cause.name == RAISED else group.cases
                kinds.setdefault(key, []).extend((cell, group, case) for case in few)
    for found in kinds.values():
        found.sort(key=lambda one: (not one[2].call, *_oddness(*one[1:]), len(one[2].call)))
    turns = sorted(kinds.values(), key=lambda found: (*_oddness(*found[0][1:])[:2], not _finite(found[0][2]), -len(found)))
    most = max(map(len, turns), default=0)
    return [found[i] for i in range(most) for found in turns if i < len(found)]


def _oddness(group: Group, case: Case) -> tuple[int, int, int]:
    """How odd the oddest number of a call is, the number of the case's subjects, and how odd all the numbers are."""
    given = re.sub(r"\b[a-z]+\d+\b", "", case.call.partition("(")[2])  # without the dtypes
    numbers = [_odd(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?|\binf\b|\bnan\b", given)]
    return max(numbers, default=_ODDEST) if case.call else _ODDEST, len(group.effects), sum(numbers)


def _odd(number: str) -> int:
    """0 for a number that a reader can check at once; 1 for zero, infinity and NaN; 2 for a tiny, huge or long one."""
    if _SMALL <= float(number) <= _LARGE and len(number) <= _DIGITS:
        return 0
    return 1 if float(number) == 0 or not math.isfinite(float(number)) else _ODDEST


def _finite(case: Case) -> bool:
    """Whether the right result of a call is finite numbers: no error, no NaN, no infinity."""
    return bool(case.call) and any(not re.search(r"\b(an error|nan|inf)\b", expected) for expected in case.expected)


def _training(view: View, group: Group) -> str:
    """What the failure does to a training: by its cause, or by the subject that most failures of the same kind share."""
    if group.cause is not None and group.cause.name in TRAINING:
        return TRAINING[group.cause.name]
    groups = [one for cell in view.cells.values() for one in cell.groups]
    told = {effect.name: effect.training for one in groups for effect in one.effects if effect.training}
    alike = [one for one in groups if (one.status, one.cause) == (group.status, group.cause)]
    shared = Counter(effect.name for one in alike for effect in one.effects for _ in one.cases)
    return told.get(max((effect.name for effect in group.effects), key=shared.__getitem__, default=""), "")


def _case(cell: Cell, group: Group, case: Case, training: str, width: int, alone: bool) -> Iterator[Line]:
    """The case, the call, what is right and what came, each in a line; and what that does to a training, in full."""
    title = f": {case.title}" if case.title else ""
    target = "" if alone else f"{cell.target}: "
    yield _cut(f"  {MARKS[group.status]} {target}{cell.operation}/{case.name}{title}", width), text.STYLES[group.status]
    said = (
        ("called", case.call, 2),  # its limit is at its end
        ("expected", next(iter(case.expected), ""), 1),
        ("got", case.got or case.message, 1),
        ("training", training, None),
    )
    for label, what, most in said:
        wrapped = textwrap.TextWrapper(width, max_lines=most, placeholder=" …", break_on_hyphens=False)
        wrapped.initial_indent, wrapped.subsequent_indent = f"    {label:<10}", " " * 14
        yield from ((line, "") for line in wrapped.wrap(what))


def _cut(line: str, width: int, always: bool = False) -> str:
    """The line, shortened where it is too long."""
    if len(line) <= width and not always:
        return line
    return f"{line.removesuffix(' …')[: width - 2].rstrip()} …"
