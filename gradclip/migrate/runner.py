"""Migrate one file or many: in order and in parallel; an error in one file does not stop the others."""

from __future__ import annotations

import ast
import difflib
import io
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from multiprocessing import get_context, parent_process

from gradclip.migrate import disk
from gradclip.migrate.codemod.codes import CODES, link
from gradclip.migrate.files import SETTINGS, Found, harmless
from gradclip.migrate.importers import kept
from gradclip.migrate.model import Migrated, Options, Outcome, Site, SourceError
from gradclip.migrate.notebook import Notebook, Unread
from gradclip.migrate.project import About
from gradclip.migrate.settings import report_settings, wanted

__all__ = ["FileResult", "Migrate", "Place", "Request", "migrate_bytes", "migrate_file", "run"]

Migrate = Callable[[str, Options], Migrated]

_MAGIC = CODES["GM212"]
_CHUNK = 8  #: files per task of a process
_AHEAD = 4  #: chunks per process to read ahead of the results; this bounds the memory
_FEW = 24  #: up to this many files, starting processes takes longer than migrating


@dataclass(frozen=True, slots=True)
class Request:
    """What to do with each file."""

    options: Options
    write: bool = False
    diff: bool = True  #: make a diff of the changes
    wanted: Mapping[str, frozenset[str]] = field(default_factory=dict)  #: the names that the files import from each other
    about: Mapping[str, About] = field(default_factory=dict)  #: other facts about a file from the other files


@dataclass(frozen=True, slots=True)
class Place:
    """A site in its file."""

    site: Site  #: its line is the line in the file, or in the cell
    cell: int = 0  #: in a notebook, from 1 over all cells; else 0


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result for one file."""

    path: str
    places: tuple[Place, ...] = ()
    changed: bool = False  #: whether the migrated source differs
    written: bool = False
    diff: str = ""  #: in the format of ``git apply`` and ``patch``
    error: str = ""  #: one line: why the migration failed
    cell: int = 0  #: position of the error, with the next two; 0: unknown
    line: int = 0
    column: int = 0
    skipped: str = ""  #: why the file was not read

    def count(self, outcome: Outcome) -> int:
        """The number of sites with this outcome."""
        return sum(place.site.outcome is outcome for place in self.places)


class _Problem(SourceError):
    """A source error in a cell."""

    def __init__(self, message: str, line: int = 0, column: int = 0, cell: int = 0) -> None:
        super().__init__(message, line, column)
        self.cell = cell


def migrate_file(path: str, request: Request, migrate: Migrate) -> FileResult:
    """Migrate one file; any failure becomes the result's ``error``.

    Args:
        path: the file; a notebook if the name ends in ``.ipynb``.
        request: what to do.
        migrate: ``codemod.migrate_source``, or a function like it.

    Returns:
        The result for the file.
    """
    try:
        source = disk.read(path)
    except disk.FileError as error:
        if path.endswith(SETTINGS):  # most of them are not settings, and none would be rewritten
            return FileResult(path, skipped=str(error))
        return FileResult(path, error=str(error))
    result, new = migrate_bytes(path, source, request, migrate)
    if request.write and result.changed:
        try:
            disk.replace(path, source, new)
            return replace(result, written=True)
        except disk.FileError as error:
            return FileResult(path, error=str(error))
    return result


def migrate_bytes(path: str, source: disk.Source, request: Request, migrate: Migrate) -> tuple[FileResult, bytes]:
    """Migrate a source that has been read; write nothing."""
    kind = _notebook if path.endswith(".ipynb") else _settings if path.endswith(SETTINGS) else _python
    try:
        about = request.about.get(path, About())
        options = replace(request.options, kept=kept(path, request.wanted), sparse=about.sparse, stars=about.stars)
        text, places = kind(source.text, options, migrate)
        changed = text != source.text
        new = source.encode(text) if changed else source.raw
        mark = source.mark.decode()  # a program that applies the diff reads the mark as part of the first line
        diff = _diff(path, mark + source.text, mark + text) if changed and request.diff else ""
        return FileResult(path, places, changed, diff=diff), new
    except SourceError as error:
        cell = getattr(error, "cell", 0)
        result = FileResult(path, error=error.message, cell=cell, line=error.line, column=error.column)
    except disk.FileError as error:
        result = FileResult(path, error=str(error))
    except Exception as error:  # a bug in gradclip must not stop the other files
        result = FileResult(
            path, error=f"internal error, please report it: {type(error).__name__}: {' '.join(str(error).split())}"
        )
    return result, source.raw


def _python(text: str, options: Options, migrate: Migrate) -> tuple[str, tuple[Place, ...]]:
    migrated = _checked(text, options, migrate, flags=0)
    return migrated.source, tuple(map(Place, migrated.sites))


def _notebook(text: str, options: Options, migrate: Migrate) -> tuple[str, tuple[Place, ...]]:
    notebook = Notebook(text)
    places = [Place(_in_magic(unread), unread.cell) for unread in notebook.unread if wanted(_MAGIC.code, options)]
    if not notebook.program:
        return text, tuple(places)
    try:
        migrated = _checked(notebook.program, options, migrate, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SourceError as error:
        if not error.line:
            raise
        cell, line = notebook.locate(error.line)
        raise _Problem(error.message, line, error.column, cell) from None
    for site in filter(lambda site: notebook.has(site.line), migrated.sites):
        cell, line = notebook.locate(site.line)
        places.append(Place(replace(site, line=line), cell))
    places.sort(key=lambda place: (place.cell, place.site))
    return notebook.replaced(migrated.source), tuple(places)


def _in_magic(unread: Unread) -> Site:
    manual = (Outcome.MANUAL, unread.text, _MAGIC.reason, _MAGIC.advice, link(_MAGIC.code))
    return Site(unread.line, unread.column, _MAGIC.code, *manual)


def _settings(text: str, options: Options, migrate: Migrate) -> tuple[str, tuple[Place, ...]]:
    return text, tuple(map(Place, report_settings(text, options)))


def _checked(text: str, options: Options, migrate: Migrate, flags: int) -> Migrated:
    """Migrate a source; if it changes, check that Python can compile the old and the new one.

    Raises:
        SourceError: if either does not compile, or the source cannot be parsed.
    """
    try:
        migrated = migrate(text, options)
    except SourceError as error:
        raise _problem(text, flags) or error from None
    except RecursionError:
        raise SourceError("nested too deeply to be read") from None
    if migrated.source == text:
        return migrated
    if problem := _problem(text, flags):
        raise problem
    if problem := _problem(migrated.source, flags):
        raise SourceError(f"internal error, please report it: the rewritten source does not compile: {problem.message}")
    return migrated


def _problem(text: str, flags: int) -> SourceError | None:
    """The reason why Python cannot compile a source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about the user's own code
        try:
            compile(text, "source", "exec", flags=flags, dont_inherit=True)
        except SyntaxError as error:
            if "too many nested" in error.msg or "too many statically nested" in error.msg:
                return SourceError("nested too deeply to be read")
            return SourceError(_explained(error), error.lineno or 0, error.offset or 0)
        except (RecursionError, MemoryError):
            return SourceError("nested too deeply to be read")
        except ValueError as error:  # lone surrogates
            return SourceError(f"does not parse: {error}")
    return None


def _explained(error: SyntaxError) -> str:
    old = ("Missing parentheses in call to", "multiple exception types must be parenthesized")
    message = error.msg.removesuffix(".")
    return f"Python 2, not 3: {message}" if message.startswith(old) else f"does not parse: {message}"


def _diff(path: str, old: str, new: str) -> str:
    before, after = (list(io.StringIO(text, newline="\n")) for text in (old, new))
    lines = difflib.unified_diff(before, after, _in_diff(f"a/{path.lstrip('/')}"), _in_diff(f"b/{path.lstrip('/')}"))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _in_diff(name: str) -> str:
    """A name in the format of ``git apply`` and ``patch``: quoted if it has control characters."""
    if harmless(name) != name:
        quoted = "".join(
            f"\\{byte:03o}" if byte < 32 or byte > 126 or byte in b'"\\' else chr(byte) for byte in os.fsencode(name)
        )
        return f'"{quoted}"'
    return name + ("\t" if " " in name else "")  # the tab ends a name with spaces


# ---- many files ---------------------------------------------------------------------------------------------------------


def run(found: Iterable[Found], request: Request, jobs: int, migrate: Migrate) -> Iterator[FileResult]:
    """Migrate files in parallel; the results keep the order of the files, and memory stores only a few.

    Args:
        found: the files; read only as far ahead as the processes need.
        request: what to do with each file.
        jobs: the number of processes; with 1, this process does the work.
        migrate: ``codemod.migrate_source``, or a function like it that can be pickled.

    Returns:
        A result for each of ``found``.
    """
    found = iter(found)
    few = list(islice(found, _FEW + 1))
    if jobs == 1 or len(few) <= _FEW:  # starting a process takes as long as reading a few files
        for one in chain(few, found):
            yield _one(one, request, migrate)
        return
    yield from _Pool(request, jobs, migrate).run(chain(few, found))


def _one(found: Found, request: Request, migrate: Migrate) -> FileResult:
    if found.error or found.skipped:
        return FileResult(found.path, error=found.error, skipped=found.skipped)
    return migrate_file(found.path, request, migrate)


def _several(found: list[Found], request: Request, migrate: Migrate) -> list[FileResult]:
    return [_one(one, request, migrate) for one in found]


class _Pool:
    """A pool that replaces its processes when one of them dies."""

    def __init__(self, request: Request, jobs: int, migrate: Migrate) -> None:
        self._work = (request, migrate)
        self._jobs = jobs
        self._executor = self._started(jobs)

    def run(self, found: Iterator[Found]) -> Iterator[FileResult]:
        """The results, in order."""
        pending: deque[tuple[list[Found], Future[list[FileResult]]]] = deque()
        try:
            while chunk := list(islice(found, _CHUNK)):
                pending.append((chunk, self._submit(chunk)))
                if len(pending) == _AHEAD * self._jobs:
                    yield from self._results(*pending.popleft())
            while pending:
                yield from self._results(*pending.popleft())
        finally:
            self._executor.shutdown(cancel_futures=True)

    def _submit(self, chunk: list[Found]) -> Future[list[FileResult]]:
        try:
            return self._executor.submit(_several, chunk, *self._work)
        except BrokenProcessPool:
            self._executor = self._started(self._jobs)
            return self._executor.submit(_several, chunk, *self._work)

    def _results(self, chunk: list[Found], future: Future[list[FileResult]]) -> Iterator[FileResult]:
        try:
            yield from future.result()
        except BrokenProcessPool:  # one file in the chunk has killed its process; separate processes show which
            for one in chunk:
                with self._started(1) as alone:
                    try:
                        yield from alone.submit(_several, [one], *self._work).result()
                    except BrokenProcessPool:
                        yield FileResult(one.path, error="the process that read it was killed: too large, or nested too deeply")

    @staticmethod
    def _started(jobs: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_quiet)


def _quiet() -> None:
    """Ignore interrupts, which the parent handles, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def cores() -> int:
    """The number of processes that can run at the same time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
