"""Which files to read: the named ones, and in folders the sources, notebooks and settings that no rule excludes."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import BinaryIO

try:
    from pathspec import GitIgnoreSpec
except ImportError:  # a plain install: no file is ignored by a pattern
    GitIgnoreSpec = None  # type: ignore[assignment, misc]

__all__ = ["SETTINGS", "Found", "PatternError", "discover", "harmless", "opened", "reason", "scanned"]

SETTINGS = (".json", ".toml", ".yaml", ".yml")  #: files with trainers' configurations
SUFFIXES = (".py", ".pyw", ".ipynb", *SETTINGS)
#: folders without anybody's source; the report omits them
_CACHES = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
#: folders with other people's source, or with copies
_FOREIGN = frozenset({"node_modules", "site-packages", "dist-packages", "__pypackages__", ".tox", ".nox", ".venv", ".eggs"})
_BUILT = frozenset({"build", "dist"})

_LARGEST = 1 << 20  #: bytes
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read, or the reason not to read it."""

    path: str  #: as displayed
    error: str = ""  #: why it cannot be read
    skipped: str = ""  #: why it is skipped, though it could be read


class PatternError(ValueError):
    """An invalid glob; the argument is the glob."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """The patterns of one ``.gitignore``."""

    base: str  #: absolute; the patterns are relative to it
    spec: GitIgnoreSpec | None

    def verdict(self, path: str, folder: bool) -> bool | None:
        """Whether an absolute path below ``base`` is excluded; None if no pattern matches it."""
        if self.spec is None:
            return None
        inner = path[len(self.base) :].replace(os.sep, "/").lstrip("/")
        return self.spec.check_file(f"{inner}/" if folder else inner).include


def discover(paths: Sequence[str], exclude: Sequence[str] = ()) -> Iterator[Found]:
    """The files, in the order of the paths, and by name below each path; memory stores only the folders on the current path.

    A named file is always included, whatever its name or the exclusions. In a folder, symbolic links are not followed, so no
    file appears twice and no loop occurs. Caches, virtual environments, other people's packages, build folders and files
    excluded by ``.gitignore`` are skipped.

    Args:
        paths: files and folders.
        exclude: patterns in the syntax of ``.gitignore``, relative to the working directory. They need pathspec, and so do
            ``.gitignore`` files.

    Raises:
        PatternError: if a pattern is invalid.
    """
    if wrong := [pattern for pattern in exclude if not _is_pattern(pattern)]:
        raise PatternError(wrong[0])
    named = {_real(path): os.path.normpath(path) for path in reversed(paths)}
    return _each(list(reversed(named.values())), frozenset(named), GitIgnoreSpec.from_lines(exclude) if exclude else None)


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a null character
        return path


def _each(paths: list[str], named: frozenset[str], exclude: GitIgnoreSpec | None) -> Iterator[Found]:
    for path in paths:
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError) as error:  # ValueError: a null character in the name
            yield Found(path, error="a symbolic link to nothing" if _dangling(path) else reason(error))
            continue
        if stat.S_ISDIR(mode):
            here = os.getcwd() if _within(os.path.abspath(path), os.getcwd()) else os.path.abspath(path)
            yield from _walk(path, named, _Rules(here, exclude))
        elif stat.S_ISREG(mode):
            yield Found(path)
        else:
            yield Found(path, error=_no_file(mode))


def _walk(top: str, named: frozenset[str], exclude: _Rules) -> Iterator[Found]:
    """Walk depth first and by name, without recursion: folders may be nested deeper than Python's stack."""
    names = {os.path.basename(path) for path in named}
    absolute = os.path.abspath(top)
    above = _rules_above(absolute)
    if _excluded(absolute, True, above):  # the user named it, so it is read anyway
        above = ()
    inside, error = _entries(top)
    if error:
        yield Found(top, error=error)
    pending = [(inside, (*above, *_rules_of(absolute)))]
    while pending:
        entries, rules = pending[-1]
        if not (entry := next(entries, None)):
            pending.pop()
            continue
        path, absolute = os.path.normpath(entry.path), os.path.abspath(entry.path)
        folder = entry.is_dir(follow_symlinks=False)
        if not (folder or _ours(entry)) or (entry.name in names and os.path.realpath(path) in named):
            continue  # a named file appears at its own position
        why = "excluded by --exclude" if exclude.verdict(absolute, folder) else ""
        why = why or ("excluded by a .gitignore" if _excluded(absolute, folder, rules) else "")
        if not folder:
            yield _file(entry, path, why)
        elif why := why or _foreign(path, entry.name):
            if entry.name not in _CACHES:
                yield Found(path, skipped=why)
        else:
            inside, error = _entries(path)
            if error:
                yield Found(path, error=error)
            pending.append((inside, (*rules, *_rules_of(absolute))))


def _entries(folder: str) -> tuple[Iterator[os.DirEntry[str]], str]:
    """The entries of a folder, by name; or the reason why they cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return iter(sorted(entries, key=lambda entry: entry.name)), ""
    except OSError as error:
        return iter(()), reason(error)


def _ours(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(SUFFIXES) or (entry.is_symlink() and os.path.isdir(entry.path))


def _file(entry: os.DirEntry[str], path: str, skipped: str) -> Found:
    if entry.is_symlink():
        return Found(path, skipped=skipped or "a symbolic link, not followed")
    if skipped or entry.is_file(follow_symlinks=False):
        return Found(path, skipped=skipped)
    try:
        return Found(path, error=_no_file(entry.stat(follow_symlinks=False).st_mode))
    except OSError as error:  # it has vanished
        return Found(path, error=reason(error))


def _excluded(path: str, folder: bool, rules: tuple[_Rules, ...]) -> bool:
    """Whether the ``.gitignore`` files exclude a path: the innermost file with a matching pattern decides."""
    verdicts = (rule.verdict(path, folder) for rule in reversed(rules))
    return next((one for one in verdicts if one is not None), False)


def _foreign(path: str, name: str) -> str:
    """Why a folder does not contain the user's source; "" if it may."""
    if name in _CACHES:
        return "a cache"
    if name in _FOREIGN or name.endswith(".egg-info"):
        return "other people's packages, or copies"
    if os.path.exists(os.path.join(path, "pyvenv.cfg")):
        return "a virtual environment"
    if name in _BUILT and not os.path.exists(os.path.join(path, "__init__.py")):  # else it is a package of that name
        return "a build folder"
    return ""


def _rules_of(folder: str) -> tuple[_Rules, ...]:
    """The rules in the ``.gitignore`` of a folder, if it is readable."""
    if GitIgnoreSpec is None:
        return ()
    try:
        with opened(os.path.join(folder, ".gitignore")) as file:
            lines = file.read(_LARGEST).decode("utf-8", "surrogateescape").splitlines()
    except (OSError, ValueError):
        return ()
    return (_Rules(folder, GitIgnoreSpec.from_lines(filter(_is_pattern, lines))),)


def _is_pattern(line: str) -> bool:
    """Whether a line is a valid pattern; Git ignores an invalid one."""
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _rules_above(folder: str) -> tuple[_Rules, ...]:
    """The rules of the folders from a repository's root down to the parent of a folder, the outermost first."""
    above = [folder]
    while above[-1] != (parent := os.path.dirname(above[-1])):
        above.append(parent)
    inside = list(takewhile(lambda one: not os.path.exists(os.path.join(one, ".git")), above))
    if len(inside) == len(above):
        return ()  # not in a repository
    outer = above[1 : len(inside) + 1]
    return tuple(rules for one in reversed(outer) for rules in _rules_of(one))


def _within(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def _dangling(path: str) -> bool:
    return os.path.islink(path) and not os.path.lexists(os.path.realpath(path))


def _no_file(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return f"{kinds.get(stat.S_IFMT(mode), 'something else')}, not a file"


def opened(path: str) -> BinaryIO:
    """Open a file to read it; anything else raises at once, because a read of a pipe could wait for ever.

    Raises:
        OSError: if it cannot be opened, or is not a file.
    """
    handle = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    )
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "a folder" if stat.S_ISDIR(mode) else _no_file(mode), path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def scanned(path: str) -> str:
    """The start of a file as Latin-1, which decodes any bytes; "" if it cannot be read.

    Names are almost always ASCII, and a larger file is not migrated.
    """
    try:
        with opened(path) as file:
            raw = file.read(_LARGEST)
    except (OSError, ValueError):
        return ""
    return re.sub(r"\r\n?", "\n", raw.decode("latin-1"))


def reason(error: OSError | ValueError) -> str:
    """A short phrase: "permission denied"."""
    text = str(getattr(error, "strerror", None) or error)
    return text[:1].lower() + text[1:]


def harmless(text: str) -> str:
    r"""A name or a line without terminal control characters and without characters that change the text direction.

    >>> print(harmless("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
