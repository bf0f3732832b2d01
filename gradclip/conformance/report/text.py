"""The report as text: a table of counts, then the failures, each with its effect on training.

Lines of at most the given width.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from gradclip.conformance.report.view import MARKS, Case, Cell, Effect, Group, Kind, View
from gradclip.conformance.result import STATUSES

__all__ = ["ACCEPTED", "NARROWEST", "STYLES", "WIDEST", "describe", "kind_lines", "lines", "verdicts"]

WIDEST, NARROWEST = 110, 60  #: columns
_INDENT = "  "
_LABEL = 10  # columns of "expected" and its like
_COUNTED = 11  # columns of a count
_MOST = 8  # kinds of failures that the report opens with
STYLES = {
    "pass": "green",
    "native": "yellow",
    "fail": "bold red",
    "unexpected": "bold red",
    "expected": "yellow",
    "unclaimed": "dim",
}

#: status that leaves a target conformant -> the title of its cases
ACCEPTED = {
    "native": "As the native, where gradclip departs from it on purpose",
    "expected": "What is declared to fail, and does",
}

Line = tuple[str, str]  #: text, and how it looks on a terminal


def lines(view: View, width: int = 80, verbose: bool = False) -> Iterator[Line]:
    """The lines of a report, without their ends."""
    width = max(width, NARROWEST)
    report = view.report
    yield from _wrapped(f"gradclip conformance {report.suite_version}, vectors {view.vector_version}", width, "", "bold")
    yield "", ""
    wrong = view.kinds("fail", "unexpected")
    if wrong:
        yield "What failed", "bold"
        yield from _kinds(wrong, view, width)
        yield "", ""
    yield from _table(view, width)
    if len(view.targets) == 1:
        yield from _alone(view, width)
    said: set[Effect] = set()
    for target in view.targets:
        for cell in view.of_target(target):
            for group in cell.groups:
                if group.status not in ACCEPTED or verbose:
                    yield "", ""
                    yield from _group(cell, group, width, verbose, said)
            if verbose and cell.unclaimed and cell.claimed:
                yield "", ""
                yield from _unclaimed(cell, width)
    yield "", ""
    for verdict, style in verdicts(view):
        yield from _wrapped(verdict, width, "", style)
    groups = [group for cell in view.cells.values() for group in cell.groups]
    if not verbose and any(group.status in ACCEPTED or len(group.cases) > 1 for group in groups):
        yield from _wrapped("--verbose shows every case.", width, "")


def _kinds(kinds: Sequence[Kind], view: View, width: int) -> Iterator[Line]:
    """A line or two for each kind: the number of cases, and what they share."""
    for kind in kinds[:_MOST]:
        yield from kind_lines(kind, view, width)
    if len(kinds) > _MOST:
        yield f"{_INDENT}and {len(kinds) - _MOST} more kinds", ""


def kind_lines(kind: Kind, view: View, width: int) -> Iterator[Line]:
    """One kind of failures: the number of cases, and what they share."""
    target = f"{kind.target}: " if len(view.targets) > 1 else ""
    about = ": ".join(filter(None, (", ".join(kind.names), kind.explanation.replace("`", ""))))
    head = f"{MARKS[kind.status]} {kind.count:>3,}  {target}{about}"
    hanging = _INDENT + " " * len(f"{MARKS[kind.status]} {kind.count:>3,}  ")
    for line in textwrap.wrap(head, width, initial_indent=_INDENT, subsequent_indent=hanging, break_on_hyphens=False):
        yield line, STYLES[kind.status]


def _alone(view: View, width: int) -> Iterator[Line]:
    """More about a single target: a line for each operation, and the declarations."""
    (target,) = view.targets
    cells = list(view.of_target(target))
    statuses = _shown_statuses(view)
    room = width - _COUNTED * len(statuses)
    yield "", ""
    for cell in cells:
        name = f"{MARKS[cell.status]} {cell.operation}"
        if len(name) >= room:
            yield name, ""
            name = ""
        yield f"{name:<{room}}" + "".join(f"{cell.counts[status]:>{_COUNTED},}" for status in statuses), STYLES[cell.status]
    for status, title in ACCEPTED.items():
        if kinds := view.kinds(status):
            yield "", ""
            yield title, "bold"
            yield from _kinds(kinds, view, width)


def _shown_statuses(view: View) -> list[str]:
    return [status for status in STATUSES if status not in ("native", "unexpected") or view.report.counts()[status]]


def _table(view: View, width: int) -> Iterator[Line]:
    """For each target a line with its counts, and one with its versions."""
    statuses = _shown_statuses(view)
    room = width - _COUNTED * len(statuses)
    if room <= max((len(target) for target in view.targets), default=0):
        room = len(_INDENT)  # the longer names get lines of their own
    yield " " * room + "".join(f"{status:>{_COUNTED}}" for status in statuses), "bold"
    for target in view.targets:
        counts = view.report.counts(target)
        head = target
        if len(target) >= room:
            yield from _wrapped(target, width, "")
            head = ""
        good = not (counts["fail"] or counts["unexpected"])
        yield f"{head:<{room}}" + "".join(f"{counts[status]:>{_COUNTED},}" for status in statuses), "" if good else "red"
        yield from _wrapped(view.made_of(target), width, _INDENT, "dim")


def _group(cell: Cell, group: Group, width: int, verbose: bool, said: set[Effect]) -> Iterator[Line]:
    """The cases of one kind: the first of them, or all; then what they have in common, if it has not been said."""
    shown = group.cases if verbose else group.cases[:1]
    for i, case in enumerate(shown):
        if i:
            yield "", ""
        title = f": {case.title}" if case.title else ""
        word = "UNEXPECTED PASS" if group.status == "unexpected" else group.status.upper()
        head = f"{MARKS[group.status]} {word} {cell.target}: {cell.operation}/{case.name}{title}"
        yield from _wrapped(head, width, "", STYLES[group.status])
        yield from _case(case, width)
    rest = [case.name for case in group.cases[len(shown) :]]
    if rest:
        yield from _labelled("also", f"{', '.join(rest)}", width)
    yield from _labelled("declared", group.declared, width)
    if group.cause and not any(group.cause.explanation in f"{case.got} {case.message}" for case in shown):
        yield from _labelled("cause", group.cause.explanation, width)
    yield from _effects([Effect(effect.name) if effect in said else effect for effect in group.effects], width)
    said.update(group.effects)


def _case(case: Case, width: int) -> Iterator[Line]:
    yield from _labelled("called", case.call, width)
    for i, expected in enumerate(case.expected):
        yield from _labelled("or" if i else "expected", expected, width)
    yield from _labelled("got", case.got, width)
    yield from _labelled("off by", case.off, width)
    yield from _labelled("found", case.message, width)


def _effects(effects: Sequence[Effect], width: int) -> Iterator[Line]:
    for effect in effects:
        yield from _labelled("about", f"{effect.name}: {effect.explanation}" if effect.explanation else effect.name, width)
        yield from _labelled("training", effect.training, width)
        for link in effect.links:
            yield f"{_INDENT}{'see':<{_LABEL}}{link}", "dim"  # in one piece, to be followed


def _unclaimed(cell: Cell, width: int) -> Iterator[Line]:
    yield from _wrapped(f"{MARKS['unclaimed']} UNCLAIMED {cell.target}: {cell.operation}", width, "", STYLES["unclaimed"])
    for needs, names in cell.unclaimed.items():
        yield from _labelled("needs", f"{needs}: {', '.join(names)}", width)


def describe(group: Group) -> str:
    """One case, for a failed test."""
    (case,) = group.cases
    text = [case.title] if case.title else []
    text += [line for line, _ in (*_case(case, WIDEST), *_effects(group.effects, WIDEST))]
    return "\n".join(text)


def verdicts(view: View) -> Iterator[Line]:
    """For each target whether it conforms."""
    for target in view.targets:
        counts = view.report.counts(target)
        claimed = sum(counts.values()) - counts["unclaimed"]
        wrong = [f"{counts[status]:,} {words}" for status, words in _WRONG.items() if counts[status]]
        exception = view.nearly_all(target)
        if exception:
            others = f"; {counts['fail'] - exception[1]:,} others fail" if counts["fail"] > exception[1] else ""
            cases = f"{exception[1]:,} of {claimed:,} claimed cases{others}"
            text, style = f"{MARKS['fail']} {target} does not conform: it raises {exception[0]} ({cases}).", "bold red"
        elif wrong:
            text, style = (
                f"{MARKS['fail']} {target} does not conform: of {claimed:,} claimed cases {', '.join(wrong)}.",
                "bold red",
            )
        elif not claimed:
            text, style = f"{MARKS['unclaimed']} {target} claims none of the selected cases.", "yellow"
        else:
            but = f" but for {counts['expected']:,} declared failures" if counts["expected"] else ""
            like = f", {counts['native']:,} of them as the native, where gradclip departs" if counts["native"] else ""
            text, style = f"{MARKS['pass']} {target} conforms{but}: {claimed:,} cases claimed{like}.", "bold green"
        yield text, style


_WRONG = {"fail": "fail", "unexpected": "pass that are declared to fail"}


def _labelled(label: str, text: str, width: int) -> Iterator[Line]:
    indent = _INDENT + " " * _LABEL
    for i, line in enumerate(textwrap.wrap(text, width - len(indent), break_on_hyphens=False)):
        yield f"{_INDENT}{label:<{_LABEL}}{line}" if i == 0 else f"{indent}{line}", ""


def _wrapped(text: str, width: int, indent: str, style: str = "") -> Iterator[Line]:
    for line in textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + _INDENT, break_on_hyphens=False):
        yield line, style
