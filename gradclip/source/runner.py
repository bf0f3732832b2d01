"""Migrate one file or many: in order and in parallel; an error in one file does not stop the others."""

from __future__ import annotations

import ast
import difflib
import io
import os
import re
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice

from gradclip.source import disk
from gradclip.source.codes import wanted
from gradclip.source.files import SETTINGS, Found, harmless
from gradclip.source.interrupts import raise_lost, signals_wait
from gradclip.source.model import About, Migrated, Options, Site, SourceError, Verdict
from gradclip.source.notebook import Notebook
from gradclip.source.parsing import needed
from gradclip.source.settings import report_settings
from gradclip.source.workers import Killed, Unstarted, Workers, waited

__all__ = ["FileResult", "Migrate", "Place", "Request", "migrate_bytes", "migrate_file", "run"]

Migrate = Callable[[str, Options], Migrated]

_COMMENT = re.compile(r"#.*")
_AHEAD = 32  #: files per process to read ahead of the results; this bounds the memory
_FEW = 24  #: up to this many files, starting processes takes longer than migrating


@dataclass(frozen=True, slots=True)
class Request:
    """What to do with each file."""

    options: Options
    write: bool = False
    diff: bool = True  #: make a diff of the changes
    about: Mapping[str, About] = field(default_factory=dict)  #: facts about a file from the other files


@dataclass(frozen=True, slots=True)
class Place:
    """A site in its file."""

    site: Site  #: its line is the line in the file, or in the cell
    cell: int = 0  #: in a notebook, from 1 over all cells; else 0
    comment: str = ""  #: for the linter: the comment of its line


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
    pending: tuple[disk.Content, bytes] | None = None  #: the old and the new content, until they are written

    def count(self, outcome: Verdict) -> int:
        """The number of sites with this outcome."""
        return sum(place.site.outcome is outcome for place in self.places)


def migrate_file(path: str, request: Request, migrate: Migrate) -> FileResult:
    """Migrate one file; any failure becomes the result's ``error``.

    Args:
        path: the file; a notebook if the name ends in ``.ipynb``.
        request: what to do.
        migrate: ``codemod.migrate_source``, ``sites.linted``, or a function like them.

    Returns:
        The result for the file.
    """
    return _written(_read(path, request, migrate))


def _read(path: str, request: Request, migrate: Migrate) -> FileResult:
    """Migrate one file, and write nothing yet."""
    try:
        source = disk.read(path)
    except disk.FileError as error:
        if path.endswith(SETTINGS):  # most of them are not settings, and none would be rewritten
            return FileResult(path, skipped=str(error))
        return FileResult(path, error=str(error))
    result, new = migrate_bytes(path, source, request, migrate)
    return replace(result, pending=(source, new)) if request.write and result.changed else result


def _written(result: FileResult) -> FileResult:
    """Write a migrated file, if it is to be written."""
    if result.pending is None:
        return result
    source, new = result.pending
    result = replace(result, pending=None)
    try:
        disk.replace(result.path, source, new)
        return replace(result, written=True)
    except disk.FileError as error:
        return FileResult(result.path, error=str(error))


def migrate_bytes(path: str, source: disk.Content, request: Request, migrate: Migrate) -> tuple[FileResult, bytes]:
    """Migrate a source that has been read; write nothing."""
    kind = _notebook if path.endswith(".ipynb") else _settings if path.endswith(SETTINGS) else _python
    try:
        options = replace(request.options, about=request.about.get(path, About()), path=path)
        text, places = kind(source.text, options, migrate)
        changed = text != source.text
        new = source.encode(text) if changed else source.raw
        mark = source.mark.decode()  # a program that applies the diff reads the mark as part of the first line
        diff = _diff(path, mark + source.text, mark + text) if changed and request.diff else ""
        return FileResult(path, places, changed, diff=diff), new
    except SourceError as error:
        result = FileResult(path, error=error.message, cell=error.cell, line=error.line, column=error.column)
    except disk.FileError as error:
        result = FileResult(path, error=str(error))
    except Exception as error:  # a bug in gradclip must not stop the other files
        result = FileResult(
            path, error=f"internal error, please report it: {type(error).__name__}: {' '.join(str(error).split())}"
        )
    return result, source.raw


def _python(text: str, options: Options, migrate: Migrate) -> tuple[str, tuple[Place, ...]]:
    migrated = _checked(text, options, migrate, flags=0)
    return migrated.source, _places(migrated.sites, text, options)


def _places(sites: Iterable[Site], text: str, options: Options) -> tuple[Place, ...]:
    """The sites, and for the linter the comments of their lines."""
    if not options.lint:
        return tuple(map(Place, sites))
    lines = re.split(r"\r\n|\r|\n", text)
    return tuple(Place(site, comment="".join(_COMMENT.findall(lines[site.line - 1])[:1])) for site in sites)


def _notebook(text: str, options: Options, migrate: Migrate) -> tuple[str, tuple[Place, ...]]:
    notebook = Notebook(text)
    places = [Place(site, cell) for cell, site in notebook.unread if wanted(options, site.code)]
    if not notebook.program:
        return text, tuple(places)
    try:
        migrated = _checked(notebook.program, options, migrate, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SourceError as error:
        if not error.line:
            raise
        cell, line = notebook.locate(error.line)
        raise SourceError(error.message, line, error.column, cell) from None
    for place in _places(filter(lambda site: notebook.has(site.line), migrated.sites), notebook.program, options):
        cell, line = notebook.locate(place.site.line)
        places.append(Place(replace(place.site, line=line), cell, place.comment))
    places.sort(key=lambda place: (place.cell, place.site))
    return notebook.replaced(migrated.source), tuple(places)


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
            return SourceError(_explained(error, text), error.lineno or 0, error.offset or 0)
        except (RecursionError, MemoryError):
            return SourceError("nested too deeply to be read")
        except ValueError as error:  # lone surrogates
            return SourceError(f"does not parse: {error}")
    return None


def _explained(error: SyntaxError, text: str) -> str:
    old = ("Missing parentheses in call to", "multiple exception types must be parenthesized")
    message = error.msg.removesuffix(".")
    if newer := needed(error, text):
        return newer
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


def run(
    found: Iterable[Found], request: Request, jobs: int, migrate: Migrate, count: Callable[[FileResult], object] = id
) -> Generator[FileResult, None, None]:
    """Migrate files in parallel; the results keep the order of the files, and memory stores only a few.

    Args:
        found: the files; read only as far ahead as the processes need.
        request: what to do with each file.
        jobs: the number of processes; with 1, this process does the work.
        migrate: ``codemod.migrate_source``, ``sites.linted``, or a function like them that can be pickled.
        count: called with each result; no signal comes between a write and its count.

    Returns:
        A result for each of ``found``.
    """
    done = _migrated(found, request, jobs, migrate)
    try:
        for result in done:
            raise_lost()
            interrupt: BaseException | None = None
            try:
                with signals_wait():
                    result = _written(result)
                    count(result)
            except KeyboardInterrupt as error:  # it waited for the file: report that first
                interrupt = error
            yield result
            if interrupt is not None:
                raise interrupt
    finally:
        done.close()


def _migrated(found: Iterable[Found], request: Request, jobs: int, migrate: Migrate) -> Generator[FileResult, None, None]:
    """The results, not yet written."""
    found = iter(found)
    few = list(islice(found, _FEW + 1))
    one = partial(_one, request=request, migrate=migrate)
    if jobs == 1 or len(few) <= _FEW or not sys.executable:  # starting a process takes as long as reading a few files
        yield from map(one, chain(few, found))
        return
    workers = Workers(one, jobs)
    pending: deque[tuple[Found, Future[FileResult]]] = deque()
    try:
        for file in chain(few, found):
            pending.append((file, workers.submit(file)))
            if len(pending) == _AHEAD * jobs:
                yield _result(*pending.popleft(), one)
        while pending:
            yield _result(*pending.popleft(), one)
    finally:
        workers.close()


def _result(file: Found, answer: Future[FileResult], one: Callable[[Found], FileResult]) -> FileResult:
    try:
        result: FileResult = waited(answer)
        return result
    except Killed:
        return FileResult(file.path, error="the process that read it was killed: too large, or nested too deeply")
    except Unstarted:
        return one(file)


def _one(found: Found, request: Request, migrate: Migrate) -> FileResult:
    if found.error or found.skipped:
        return FileResult(found.path, error=found.error, skipped=found.skipped)
    return _read(found.path, request, migrate)


def cores() -> int:
    """The number of processes that can run at the same time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
