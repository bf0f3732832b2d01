"""Which files there are to read: the named ones, and in folders the sources, notebooks and settings that nothing excludes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pathspec import GitIgnoreSpec

__all__ = ["SETTINGS", "Found", "PatternError", "discover", "harmless", "reason"]

SETTINGS = (".json", ".toml", ".yaml", ".yml")  #: what trainers are configured with
SUFFIXES = (".py", ".pyw", ".ipynb", *SETTINGS)
#: folders that hold nobody's source; not worth a word
_CACHES = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
#: folders that hold somebody else's, or copies
_FOREIGN = frozenset({"node_modules", "site-packages", "dist-packages", "__pypackages__", ".tox", ".nox", ".venv", ".eggs"})
_BUILT = frozenset({"build", "dist"})

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read, or why there is none."""

    path: str  #: as it is shown
    error: str = ""  #: why it cannot be read
    skipped: str = ""  #: why it is left out, though it could be


class PatternError(ValueError):
    """A glob that means nothing: its argument."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """The patterns of one ``.gitignore``."""

    base: str  #: absolute; what the patterns are relative to
    spec: GitIgnoreSpec

    def verdict(self, path: str, folder: bool) -> bool | None:
        """Whether an absolute path below ``base`` is excluded; None where no pattern speaks of it."""
        inner = path[len(self.base) :].replace(os.sep, "/").lstrip("/")
        return self.spec.check_file(f"{inner}/" if folder else inner).include


def discover(paths: Sequence[str], exclude: Sequence[str] = ()) -> Iterator[Found]:
    """The files, in the order of the paths and below each by name; nothing is held but the folders on the way.

    A file that is named is taken whatever its name, and whatever excludes it. In a folder, symbolic links are not followed, so
    that nothing is met twice and no loop is walked; caches, virtual environments, other people's packages, build folders and
    what ``.gitignore`` files exclude are left out.

    Args:
        paths: files and folders.
        exclude: patterns as in a ``.gitignore``, relative to the working directory.

    Raises:
        PatternError: for a pattern that means nothing.
    """
    if wrong := [pattern for pattern in exclude if not _is_pattern(pattern)]:
        raise PatternError(wrong[0])
    named = {os.path.realpath(path): os.path.normpath(path) for path in reversed(paths)}
    return _each(list(reversed(named.values())), frozenset(named), GitIgnoreSpec.from_lines(exclude))


def _each(paths: list[str], named: frozenset[str], exclude: GitIgnoreSpec) -> Iterator[Found]:
    for path in paths:
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
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
    """Depth first and by name, without recursion: folders may be nested deeper than Python's stack."""
    names = {os.path.basename(path) for path in named}
    absolute = os.path.abspath(top)
    above = _rules_above(absolute)
    if _excluded(absolute, True, above):  # and named all the same
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
            continue  # the latter has a turn of its own
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
    """What is in a folder, by name; or why that is not known."""
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
    return Found(path, error=_no_file(entry.stat(follow_symlinks=False).st_mode))


def _excluded(path: str, folder: bool, rules: tuple[_Rules, ...]) -> bool:
    """Whether the ``.gitignore`` files exclude it: the innermost that speaks of it has the last word."""
    verdicts = (rule.verdict(path, folder) for rule in reversed(rules))
    return next((one for one in verdicts if one is not None), False)


def _foreign(path: str, name: str) -> str:
    """Why a folder holds nothing of the user's."""
    if name in _CACHES:
        return "a cache"
    if name in _FOREIGN or name.endswith(".egg-info"):
        return "other people's packages, or copies"
    if os.path.exists(os.path.join(path, "pyvenv.cfg")):
        return "a virtual environment"
    if name in _BUILT and not os.path.exists(os.path.join(path, "__init__.py")):  # else a package of that name
        return "a build folder"
    return ""


def _rules_of(folder: str) -> tuple[_Rules, ...]:
    """What the ``.gitignore`` of a folder says, if it has one that can be read."""
    try:
        with open(os.path.join(folder, ".gitignore"), encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return ()
    return (_Rules(folder, GitIgnoreSpec.from_lines(filter(_is_pattern, lines))),)


def _is_pattern(line: str) -> bool:
    """Git passes over a line that means nothing."""
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _rules_above(folder: str) -> tuple[_Rules, ...]:
    """Those of the folders between a repository's root and a folder inside of it, the outermost first."""
    above = [folder]
    while above[-1] != (parent := os.path.dirname(above[-1])):
        above.append(parent)
    inside = list(takewhile(lambda one: not os.path.exists(os.path.join(one, ".git")), above))
    if len(inside) == len(above):
        return ()  # no repository
    outer = above[1 : len(inside) + 1]
    return tuple(rules for one in reversed(outer) for rules in _rules_of(one))


def _within(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def _dangling(path: str) -> bool:
    return os.path.islink(path) and not os.path.lexists(os.path.realpath(path))


def _no_file(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return f"{kinds.get(stat.S_IFMT(mode), 'something else')}, not a file"


def reason(error: OSError) -> str:
    """One plain phrase: "permission denied"."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def harmless(text: str) -> str:
    r"""A name or a line without what a terminal takes for a command, or that turns the direction of what is read.

    >>> print(harmless("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
