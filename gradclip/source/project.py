"""Relations between the files of one run: which make gradients sparse, and which names they import from each other.

A module lies in the nearest folder around the importing file that has
it; else in the nearest place of the run. A name that a package re-exports leads to the file that defines it.
"""

from __future__ import annotations

import ast
import functools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gradclip.source.files import Found
from gradclip.source.magics import parsed
from gradclip.source.model import About
from gradclip.source.outline import File, outlined, text_of
from gradclip.source.reading.files import TOPS

__all__ = ["survey"]

_ENTRY = "__init__.py"
_LIBRARY = Path(__file__).parents[1]
_MOST = 50  #: places anywhere in a run to look for a module


def survey(found: Iterable[Found]) -> Mapping[str, About]:
    """Scan the files of a run, each separately.

    Returns:
        The facts about the files that clip; a file without facts is missing.
    """
    files = [
        outlined(one.path) for one in found if not (one.error or one.skipped) and one.path.endswith((".py", ".pyw", ".ipynb"))
    ]
    modules = _Modules(files)
    any_sparse, any_set = any(file.sparse for file in files), any(file.sets for file in files)
    imported: dict[File, list[File]] = {}
    users: dict[File, list[File]] = defaultdict(list)
    for file in files if any_sparse or any_set else ():
        imported[file] = [other for other in modules.imported(file) if _are_of_one(file, other)]
        for other in imported[file]:
            users[other].append(file)
    wanted = _wanted(files)
    about = {}
    for file in files:
        if file.clips:
            sparse = _evidence(file, imported, users) if any_sparse else ""
            stars = {module: names for module in file.stars if (names := modules.bound(module, file)) is not None}
            kept = frozenset().union(*(wanted[name] for name in _last_names(file) if name in wanted))
            limits = _limits(file, imported, users) if any_set else {}
            made = About(sparse, stars, kept, modules.near(file), limits, _own(file))
            if made != About():
                about[file.given] = made
    return about


def _are_of_one(file: File, other: File) -> bool:
    """Whether two files can be of one program: their projects are the same, or one lies within the other, or unknown."""
    first, second = (_top(os.path.dirname(one.path)) for one in (file, other))
    return os.path.commonpath([first, second]) in (first, second)


@functools.lru_cache(maxsize=1 << 12)
def _top(folder: str) -> str:
    """The top folder of the project around a folder; the folder of all if nothing shows one."""
    tops = (one for one in _around(folder) if any(os.path.exists(os.path.join(one, name)) for name in TOPS))
    return next(tops, os.path.abspath(os.sep))


def _own(file: File) -> str:
    """The project's ``gradclip.py`` or ``gradclip/`` where Python looks before the library; "" if there is none.

    These places are the folder around a file's package, and the current folder.
    """
    around = [*_around(os.path.dirname(file.path))]
    root = next((folder for folder in around if not os.path.isfile(os.path.join(folder, _ENTRY))), "")
    for folder in dict.fromkeys((root, os.getcwd())):
        for name in (os.path.join(folder, "gradclip.py"), os.path.join(folder, "gradclip", _ENTRY)):
            if folder in around and os.path.isfile(name) and not os.path.samefile(os.path.dirname(name), _LIBRARY):
                return os.path.relpath(name)
    return ""


def _wanted(files: Iterable[File]) -> Mapping[str, set[str]]:
    """The names that sources import from each module, by its last name; there may be too many."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in files:
        if file.path.endswith(".ipynb"):
            continue
        aliases = {one.local: one.name or one.last for one in file.imports}
        for one in file.imports:
            if one.name:
                found[one.last].add(one.name)
        for owner, name in file.reads:
            found[owner].add(name)
            found[aliases.get(owner, owner)].add(name)
    return found


def _last_names(file: File) -> tuple[str, ...]:
    """The last names by which other files can import a file: for a package, the name of its folder, or a dot."""
    folder, name = os.path.split(file.path)
    return (".", os.path.basename(folder)) if file.is_entry else (os.path.splitext(name)[0],)


def _evidence(file: File, imported: Mapping[File, list[File]], users: Mapping[File, list[File]]) -> str:
    """The code that makes gradients sparse in the programs that use a file; another check reads the file itself."""
    return next((part.sparse for part in _beside(file, imported, users) if part.sparse), "")


def _limits(file: File, imported: Mapping[File, list[File]], users: Mapping[File, list[File]]) -> Mapping[str, str]:
    """The limits that other files of the programs that use a file set by hand."""
    parts = _beside(file, imported, users)
    return {keyword: f"`{text}` in {os.path.basename(part.path)}" for part in parts for text, keyword in part.sets}


def _beside(file: File, imported: Mapping[File, list[File]], users: Mapping[File, list[File]]) -> Iterator[File]:
    """The other files of the programs that use a file."""
    programs = [one for one in _all([file], users) if one is file or not one.is_entry]
    return (part for part in _all(programs, imported) if part is not file)


def _all(first: Sequence[File], following: Mapping[File, list[File]]) -> Iterator[File]:
    """The first files, and all files reachable from them."""
    started = set(first)
    seen = set(first)
    pending = list(reversed(first))
    while pending:
        file = pending.pop()
        yield file
        if file.is_entry and file not in started:
            continue  # it re-exports the contents of its folder, and is not part of one program
        for other in following.get(file, ()):
            if other not in seen:
                seen.add(other)
                pending.append(other)


class _Modules:
    """Finds the files of a run that an import names."""

    def __init__(self, files: Sequence[File]) -> None:
        self._files: dict[str, File] = {}  #: by path without extension; a package by its folder
        self._roots: dict[str, list[str]] = defaultdict(list)  #: first part of a module's name -> the folders that have it
        for file in files:
            base = os.path.dirname(file.path) if file.is_entry else os.path.splitext(file.path)[0]
            self._files.setdefault(base, file)
        self._folders = {folder for base in self._files for folder in _around(os.path.dirname(base))}
        for base in {*self._files, *self._folders}:
            folder, name = os.path.split(base)
            self._roots[name].append(folder)
        self._found: dict[tuple[str, str], Sequence[str]] = {}
        self._bound: dict[File, dict[str, str] | None] = {}

    # ---- files -----------------------------------------------------------------------------------------------------------

    def imported(self, file: File) -> Iterator[File]:
        """The files that define what a file imports: not the packages that only re-export it."""
        seen: set[tuple[str, str]] = set()
        for one in file.imports:
            read = functools.partial(file.read_from, one.local)
            for base in self._bases(one.module, file.path):
                for name in [one.name] if one.name else self._parts(base, read):
                    yield from self._defining(base, name, seen, read)

    def _defining(
        self, base: str, name: str, seen: set[tuple[str, str]], read: Callable[[], Sequence[str]] = tuple
    ) -> Iterator[File]:
        """The files that define a name of a module; ``read`` says what is read from the name."""
        if (base, name) in seen:
            return
        seen.add((base, name))
        inner = os.path.join(base, name) if name else base
        file = self._files.get(base)
        passed = [one for one in (file.imports if file is not None else ()) if one.name and name in (one.local, "*")]
        if name and (inner in self._files or inner in self._folders):  # a module in a package
            yield from (part for one in self._parts(inner, read) for part in self._defining(inner, one, seen))
        elif file is not None and file.is_entry and passed:
            for one in passed:
                for other in self._bases(one.module, file.path):
                    yield from self._defining(other, one.name, seen, read)
        elif file is not None:
            yield file
            if file.is_entry:
                for one in file.imports:
                    if one.name == "*":
                        for other in self._bases(one.module, file.path):
                            yield from self._defining(other, name, seen)

    def _parts(self, base: str, read: Callable[[], Sequence[str]]) -> Sequence[str]:
        """What is read from a package; a module defines all of it."""
        file = self._files.get(base)
        is_package = base in self._folders or (file is not None and file.is_entry)
        return (read() if is_package else ()) or ("",)

    def _bases(self, module: str, path: str) -> Sequence[str]:
        """The paths, without extension, that a module's name in a file can mean."""
        folder = os.path.dirname(path)
        key = (folder, module)
        if key not in self._found:
            self._found[key] = self._search(module, folder)
        return self._found[key]

    def _search(self, module: str, folder: str) -> Sequence[str]:
        parts = module.lstrip(".").split(".") if module.strip(".") else []
        up = len(module) - len(module.lstrip("."))
        if up:
            for _ in range(up - 1):
                folder = os.path.dirname(folder)
            return self._there([os.path.join(folder, *parts)])
        for around in _around(folder):
            if found := self._there([os.path.join(around, *parts)]):
                return found
        roots = [root for root in self._roots.get(parts[0], ()) if root not in self._files]  # no module of another package
        found = self._there([os.path.join(root, *parts) for root in roots[:_MOST]])
        near = max((len(os.path.commonpath([base, folder])) for base in found), default=0)
        return [base for base in found if len(os.path.commonpath([base, folder])) == near]

    def near(self, file: File) -> frozenset[str]:
        """The top-level modules of a file's imports that lie beside it, or in a folder around it."""
        tops = {one.module.partition(".")[0] for one in file.imports}
        return frozenset(top for top in tops if top and self._is_near(top, os.path.dirname(file.path)))

    @functools.cache  # noqa: B019 - it lives for one survey
    def _is_near(self, top: str, folder: str) -> bool:
        return any(self._there([os.path.join(around, top)]) for around in _around(folder))

    def _there(self, bases: Iterable[str]) -> Sequence[str]:
        return [base for base in bases if base in self._files or base in self._folders]

    # ---- star imports ----------------------------------------------------------------------------------------------------

    def bound(self, module: str, file: File) -> dict[str, str] | None:
        """The names that ``from module import *`` binds; None if unknown."""
        bases = [base for base in self._bases(module, file.path) if base in self._files]
        if len(bases) != 1:
            return None
        one = self._files[bases[0]]
        if one not in self._bound:
            self._bound[one] = None  # for a circle of stars
            self._bound[one] = self._exports(one)
        return self._bound[one]

    def _exports(self, one: File) -> dict[str, str] | None:
        tree = parsed(text_of(one.given))
        if tree is None:
            return None
        names: dict[str, str] = {}
        for statement in tree.body:
            if not self._collect(statement, names, one):
                return None
        if "__all__" not in names:
            return {name: value for name, value in names.items() if not name.startswith("_")}
        listed = _listed(tree.body)
        return None if listed is None else {name: value for name, value in names.items() if name in listed}

    def _collect(self, statement: ast.stmt, names: dict[str, str], file: File) -> bool:
        """Add the names that a statement binds; return whether all of them are known."""
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            for alias in statement.names:
                if alias.name == "*":
                    inner = self.bound(module, file)
                    if inner is None:
                        return False
                    names.update(inner)
                else:
                    names[alias.asname or alias.name] = f"{module}.{alias.name}" if not statement.level else ""
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[statement.name] = ""
        else:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names[node.id] = ""
                elif isinstance(node, (ast.Import, ast.ImportFrom)):
                    names.update(dict.fromkeys((alias.asname or alias.name.partition(".")[0] for alias in node.names), ""))
        return True


def _around(folder: str) -> Iterator[str]:
    """A folder and the folders around it, from the inside."""
    while True:
        yield folder
        outer = os.path.dirname(folder)
        if outer == folder:
            return
        folder = outer


def _listed(body: Iterable[ast.stmt]) -> frozenset[str] | None:
    """The names in ``__all__`` if it is a single list of strings; else None."""
    about = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == "__all__"]
    for statement in body:
        if len(about) == 1 and isinstance(statement, ast.Assign) and statement.targets == about:
            try:
                return frozenset(ast.literal_eval(statement.value))
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                return None
    return None
