"""The output of ``gradclip migrate``: diffs, sites and a summary, or one JSON document; both are written file by file."""

from __future__ import annotations

import json
import os
import textwrap
import time
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from gradclip.core.errors import counted
from gradclip.source.files import harmless
from gradclip.source.model import Verdict
from gradclip.source.runner import FileResult, Place

__all__ = ["SCHEMA", "JsonReport", "Report", "TextReport", "Totals", "Waiting"]

SCHEMA = 1  #: version of the JSON document; it increases when a key changes its meaning or disappears
_WIDEST = 120
_REMEMBERED = 1000  #: how many sentences to remember, so that none is printed twice
_NAMED = 20  #: how many calls without an equivalent the summary names
_INDENT = "    "
_STYLES = {"+": "green", "-": "red", "@": "cyan"}  # for the lines of a diff
_MARKS = {Verdict.REWRITTEN: "green", Verdict.MANUAL: "bold yellow", Verdict.UNCHANGED: "dim"}


@dataclass(slots=True)
class Totals:
    """The totals of a run."""

    files: int = 0  #: files read
    changed: int = 0
    annotated: int = 0  #: changed files that only get comments
    written: int = 0
    failed: int = 0
    skipped: int = 0
    rewritten: int = 0  #: number of sites, as are the next two
    manual: int = 0
    unchanged: int = 0
    lacking: int = 0  #: of the rewritten ones, those without an equivalent in the framework of ``--to``

    def add(self, result: FileResult) -> None:
        """Count one more file."""
        self.files += not result.skipped
        self.changed += result.changed
        self.annotated += result.changed and not result.count(Verdict.REWRITTEN)
        self.written += result.written
        self.failed += bool(result.error)
        self.skipped += bool(result.skipped)
        self.rewritten += result.count(Verdict.REWRITTEN)
        self.manual += result.count(Verdict.MANUAL)
        self.unchanged += result.count(Verdict.UNCHANGED)
        self.lacking += sum(bool(place.site.lacks) for place in result.places)

    @property
    def exit_code(self) -> int:
        """2: a file failed; 1: a file was changed or would be, or a person has to edit one; 0: nothing to do."""
        return 2 if self.failed else int(bool(self.changed or self.manual))


class Report:
    """Receives each finished file; this class prints nothing."""

    def __init__(self) -> None:
        self.totals = Totals()

    def shows(self, result: FileResult) -> bool:
        """Whether the report prints anything about a file."""
        return bool(result.places or result.error or result.changed)

    def file(self, result: FileResult) -> None:
        """Count one more file, and print it."""
        self.totals.add(result)
        self.show(result)

    def show(self, result: FileResult) -> None:
        """Print a file that the totals have."""

    def end(self) -> None:
        """Finish the report."""


class JsonReport(Report):
    """One JSON document, written file by file."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._between = ""
        stream.write(f'{{\n"schema": {SCHEMA},\n"files": [')

    def show(self, result: FileResult) -> None:
        if self.shows(result):
            self._stream.write(f"{self._between}\n{json.dumps(_as_json(result))}")
            self._between = ","

    def end(self) -> None:
        totals = json.dumps(asdict(self.totals))
        self._stream.write(f'\n],\n"totals": {totals},\n"exit_code": {self.totals.exit_code}\n}}\n')


def _as_json(result: FileResult) -> dict[str, Any]:
    position = {"cell": result.cell or None, "line": result.line or None, "column": result.column or None}
    return {
        "path": result.path,
        "changed": result.changed,
        "written": result.written,
        "sites": [_site_as_json(place) for place in result.places],
        "diff": result.diff,
        "error": {"message": result.error, **position} if result.error else None,
    }


def _site_as_json(place: Place) -> dict[str, Any]:
    site = place.site
    head = {"code": site.code, "outcome": site.outcome.value}
    position = {"cell": place.cell or None, "line": site.line, "column": site.column}
    said = {"reason": site.reason, "assumption": site.assumption, "advice": site.advice, "more": site.more, "lacks": site.lacks}
    return {**head, **position, "text": site.text, **said}


class TextReport(Report):
    """Text for a person: diffs, coloured on a terminal; the manual sites, each advice once; a summary.

    Args:
        stream: the output.
        errors: the stream for files that failed.
        sites: also list each rewritten site.
        verbose: also list the unchanged sites and the files that were not read.
        write: whether the run writes the changes, not only prints them.
    """

    def __init__(self, stream: TextIO, errors: TextIO, sites: bool = False, verbose: bool = False, write: bool = False) -> None:
        super().__init__()
        self._stream, self._errors, self._write = stream, errors, write
        self._console = console(stream)
        shown = {Verdict.REWRITTEN: sites or verbose, Verdict.MANUAL: True, Verdict.UNCHANGED: verbose}
        self._shown = frozenset(outcome for outcome, wanted in shown.items() if wanted)
        self._verbose = verbose
        self._said: set[tuple[str, ...]] = set()
        self._lacking: list[str] = []  #: the places of the first calls without an equivalent
        self._lacks = ""  #: the framework that has none
        self._spoken = False  #: whether it has printed since the last empty line

    def shows(self, result: FileResult) -> bool:
        return super().shows(result) or bool(result.skipped and self._verbose)

    def show(self, result: FileResult) -> None:
        if result.error:
            where = _where(result.path, result.cell, result.line, result.column)
            self._stream.flush()  # preserves the order if both streams go to one place
            self._errors.write(f"{where}: ERROR: {result.error}\n")
        elif result.skipped:
            if self._verbose:
                self._say(f"{harmless(result.path)}: skipped: {result.skipped}", "dim")
        else:
            self._diff(result.diff)
            for place in result.places:
                if place.site.lacks and len(self._lacking) < _NAMED:
                    self._lacks = place.site.lacks
                    self._lacking.append(_where(result.path, place.cell, place.site.line, 0))
                if place.site.outcome in self._shown:
                    self._site(result, place)
                elif place.site.assumption:
                    where = _where(result.path, place.cell, place.site.line, place.site.column)
                    self._say(f"{where}: {place.site.code} assumes {place.site.assumption}.")
            if result.written:
                count = result.count(Verdict.REWRITTEN)
                self._say(
                    f"{harmless(result.path)}: {counted(count, 'site')} rewritten"
                    if count
                    else f"{harmless(result.path)}: annotated"
                )

    def end(self) -> None:
        totals = self.totals
        rewritten, annotated = ("rewritten", "annotated") if self._write else ("to rewrite", "to annotate")
        parts = []
        if totals.rewritten:
            files = counted(totals.changed - totals.annotated, "file")
            parts.append(f"{counted(totals.rewritten, 'site')} {rewritten} in {files}")
        if totals.annotated:
            parts.append(f"{counted(totals.annotated, 'file')} {annotated}")
        if totals.manual:
            parts.append(f"{totals.manual:,} to do by hand")
        if not parts and not totals.failed:
            parts.append("nothing to do")
        if totals.unchanged:
            parts.append(f"{totals.unchanged:,} left as {'it is' if totals.unchanged == 1 else 'they are'}")
        if totals.failed:
            parts.append(f"{counted(totals.failed, 'file')} failed")
        if self._spoken:
            self._say("")
        self._say(f"{counted(totals.files, 'file')} read: {', '.join(parts)}.", "bold")
        if totals.lacking:
            have, *were = ("has", "is", "was") if totals.lacking == 1 else ("have", "are", "were")
            others = totals.lacking - len(self._lacking)
            places = ", ".join(self._lacking) + (f" and {others:,} more" if others else "")
            calls = f"{counted(totals.lacking, 'call')} {have} no {self._lacks} equivalent"
            self._say(f"{calls} and {were[self._write]} written as gradclip's: {places}.")
        hints = ["--write makes the changes"] if totals.changed > totals.written else []
        hints += ["--verbose says why sites are left"] if totals.unchanged and not self._verbose else []
        hints += ["--strict leaves calls without an equivalent"] if totals.lacking else []
        if hints:
            self._say(f"{'; '.join(hints)}.")

    def _diff(self, diff: str) -> None:
        if self._console is None:
            self._stream.write(diff)
        else:
            for line in diff.split("\n")[:-1]:
                style = "bold" if line.startswith(("--- ", "+++ ")) else _STYLES.get(line[:1], "")
                self._say(line, style)
        if diff:
            self._say("")
            self._spoken = False

    def _site(self, result: FileResult, place: Place) -> None:
        site = place.site
        words = {Verdict.REWRITTEN: "rewritten" if self._write else "would be rewritten", Verdict.MANUAL: "MANUAL"}
        where = _where(result.path, place.cell, site.line, site.column)
        self._say(
            f"{where}: {site.code} {words.get(site.outcome, site.outcome.value)}: {harmless(site.text)}", _MARKS[site.outcome]
        )
        if site.assumption:
            self._wrap(f"Assumes {site.assumption}.")
        rewritten, manual = site.outcome is Verdict.REWRITTEN, site.outcome is Verdict.MANUAL
        if not rewritten or self._new(site.code, site.reason):
            self._wrap(site.reason)
        if manual and self._new(site.code, site.advice):
            self._wrap(site.advice)
        if manual and site.more and self._new(site.code, site.more):
            self._say(f"{_INDENT}More: {site.more}", "dim")

    def _new(self, *what: str) -> bool:
        """Whether it is not among the remembered sentences."""
        new = what not in self._said
        if len(self._said) < _REMEMBERED:
            self._said.add(what)
        return new

    def _wrap(self, text: str) -> None:
        text = harmless(text)  # it quotes the source
        if text.startswith("Write: "):  # code must stay in one piece for copying
            self._say(_INDENT + text)
            return
        width = min(_WIDEST, self._console.width if self._console else _WIDEST)
        for line in textwrap.wrap(text, width - len(_INDENT), break_long_words=False, break_on_hyphens=False):
            self._say(_INDENT + line)

    def _say(self, text: str, style: str = "") -> None:
        self._spoken = True
        if self._console is None:
            self._stream.write(f"{text}\n")
        else:
            self._console.print(Text(text, style), soft_wrap=True)


def console(stream: TextIO) -> Console | None:
    """A console for colours; None if the output has no colours."""
    found = Console(file=stream, highlight=False)
    return found if found.is_terminal and found.color_system and not os.environ.get("NO_COLOR") else None


def _where(path: str, cell: int, line: int, column: int) -> str:
    """A position in the form that editors and terminals turn into a link."""
    position = [f"cell {cell}"] if cell else []
    position += [str(number) for number in (line, column)[: bool(line) + bool(line and column)]]
    return ":".join([harmless(path), *position])


class Waiting:
    """Shows the number of files read in a slow run: an updated line on a terminal, elsewhere a line at intervals."""

    def __init__(self, stream: TextIO, after: float = 1.0, every: float = 10.0) -> None:
        self._console = Console(file=stream, highlight=False)
        columns = (SpinnerColumn(), TextColumn("{task.completed:,} files read"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("read", total=None)
        self._every = after if self._console.is_terminal else every
        self._next, self._count, self._moving = time.monotonic() + self._every, 0, False

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *error: object) -> None:
        self._clear()

    def step(self, shown: bool = False) -> None:
        """Count one more file; clear the line if the report prints the file."""
        self._count += 1
        if shown:
            self._clear()
        elif time.monotonic() < self._next:
            return
        elif self._console.is_terminal:
            self._bar.start()
            self._bar.update(self._task, completed=self._count)
            self._moving = True
        else:
            self._next += self._every
            self._console.print(f"{self._count:,} files read ...")

    def _clear(self) -> None:
        if self._moving:
            self._bar.stop()
            self._moving = False
