"""Relations between the files of one run: which files may make gradients sparse, and which names star imports bind.

It scans the texts, because most files are not migrated. It finds a file by the last names in an import.
"""

from __future__ import annotations

import ast
import json
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gradclip.migrate.files import Found

__all__ = ["About", "survey"]

_LARGEST = 1 << 20  #: characters: larger files are not migrated
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_COMMENT = re.compile(r"#[^\n]*")
_CLIPS = re.compile(r"clip|_norm", re.IGNORECASE)
_STAR = re.compile(r"^from[ \t]+([.\w]+)[ \t]+import[ \t]+\*", re.MULTILINE)
_SPARSE = re.compile(
    r"(?<!def )\b((?:\w+\.)*(?:(?:safe_)?embedding_lookup(?:_sparse)?|embed_sequence|embedding_column|shared_embeddings"
    r"|SelectedRows))\s*\("
    r"|((?:\w+\.)*(?:layers|keras)\.Embedding|TokenAndPositionEmbedding)\s*\("
    r"|((?:tf|tensorflow)(?:\.compat\.v1)?\.gather)\(\s*(?:params\s*=\s*)?[\w.]*(?:embed|table|lookup|emb\b|weight|vocab)\w*"
)
_LOOK_UP = ("mbed", "gather", "SelectedRows")  #: each match of the two patterns contains one of these
_LAYER = re.compile(r"from\s+(?:tensorflow\.)?(?:python\.)?keras[\w.]*\s+import\s+[^\n]*\bEmbedding\b")
_ENTRIES = frozenset({"__init__"})  #: files that only re-export the contents of their folder


@dataclass(frozen=True, slots=True)
class About:
    """The facts from the other files of a run that concern one file."""

    sparse: str = ""  #: the code there that makes gradients sparse: "`tf.nn.embedding_lookup` in modeling.py"
    stars: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  #: module as written -> name -> qualified, or ""


@dataclass(slots=True)
class _File:
    path: str
    folder: str  #: the name of the folder
    stem: str
    imports: set[tuple[str, str]] = field(default_factory=set)  #: (folder or "", name) of possible files
    sparse: str = ""
    stars: tuple[str, ...] = ()
    clips: bool = False


def survey(found: Iterable[Found]) -> Mapping[str, About]:
    """Scan the files of a run, each separately.

    Returns:
        The facts about the files that clip; a file without facts is missing.
    """
    files = [
        _read(one.path) for one in found if not (one.error or one.skipped) and one.path.endswith((".py", ".pyw", ".ipynb"))
    ]
    by_name: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        by_name[file.folder if file.stem == "__init__" else file.stem].append(file)
    imported = {id(file): list(_files(file, by_name)) for file in files}
    users: dict[int, list[_File]] = defaultdict(list)
    for file in files:
        for other in imported[id(file)]:
            users[id(other)].append(file)
    about = {}
    any_sparse = any(file.sparse for file in files)
    for file in files:
        if file.clips:
            sparse = _evidence(file, imported, users) if any_sparse else ""
            stars = {module: _bound(module, file, by_name, 3) for module in file.stars}
            if sparse or stars:
                about[file.path] = About(sparse, {module: names for module, names in stars.items() if names is not None})
    return about


def _read(path: str) -> _File:
    folder, name = os.path.split(os.path.abspath(path))
    file = _File(path, os.path.basename(folder), os.path.splitext(name)[0])
    text = _COMMENT.sub("", _text(path))
    for module, names, modules in _IMPORT.findall(text):
        file.imports.update(_names(module, names) if module else _modules(modules))
    if any(word in text for word in _LOOK_UP):
        file.sparse = _sparse(text, name)
    file.stars = tuple(dict.fromkeys(_STAR.findall(text)))
    file.clips = _CLIPS.search(text) is not None
    return file


def _sparse(text: str, name: str) -> str:
    match = _SPARSE.search(text)
    if match is None:
        return f"`Embedding` in {name}" if _LAYER.search(text) else ""
    if match[2] is not None and "keras" not in text and "tensorflow" not in text:
        return ""
    return f"`{match[1] or match[2] or match[3]}` in {name}"


def _text(path: str) -> str:
    try:
        with open(path, encoding="latin-1") as stream:  # names are almost always ASCII, and Latin-1 decodes any bytes
            text = stream.read(_LARGEST)
    except OSError:
        return ""
    if not path.endswith(".ipynb"):
        return text
    try:
        cells = json.loads(text)["cells"]
        return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    except (ValueError, KeyError, TypeError):
        return ""


def _names(module: str, names: str) -> Iterator[tuple[str, str]]:
    """The files that ``from a.b import c, d`` can name: b in a, and c and d in b."""
    parts = [part for part in module.split(".") if part]
    if parts:
        yield (parts[-2] if len(parts) > 1 else ""), parts[-1]
    for item in names.strip("() \t").replace("\\", " ").split(","):
        if words := item.split():
            yield (parts[-1] if parts else ""), words[0]


def _modules(modules: str) -> Iterator[tuple[str, str]]:
    for item in modules.split(","):
        if words := item.split():
            parts = words[0].split(".")
            yield (parts[-2] if len(parts) > 1 else ""), parts[-1]


def _files(file: _File, by_name: Mapping[str, list[_File]]) -> Iterator[_File]:
    """The files that a file imports."""
    for folder, name in file.imports:
        for other in by_name.get(name, ()):
            inside = (
                os.path.basename(os.path.dirname(os.path.dirname(other.path))) if other.stem == "__init__" else other.folder
            )
            if other is not file and (not folder or folder == inside):
                yield other


def _evidence(file: _File, imported: Mapping[int, list[_File]], users: Mapping[int, list[_File]]) -> str:
    """The code that makes gradients sparse in the programs that use a file; another check reads the file itself."""
    programs = [one for one in _all([file], users) if one is file or one.stem not in _ENTRIES]
    return next((part.sparse for part in _all(programs, imported) if part is not file and part.sparse), "")


def _all(first: Sequence[_File], following: Mapping[int, list[_File]]) -> Iterator[_File]:
    """The first files, and all files reachable from them."""
    started = {id(file) for file in first}
    seen = set(started)
    pending = list(reversed(first))
    while pending:
        file = pending.pop()
        yield file
        if id(file) not in started and file.stem in _ENTRIES:
            continue  # it re-exports the contents of its folder, and is not part of one program
        for other in following.get(id(file), ()):
            if id(other) not in seen:
                seen.add(id(other))
                pending.append(other)


# ---- star imports --------------------------------------------------------------------------------------------------------


def _bound(module: str, file: _File, by_name: Mapping[str, list[_File]], depth: int) -> dict[str, str] | None:
    """The names that ``from module import *`` binds; None if unknown."""
    one = _module(module, file, by_name) if depth else None
    if one is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(_text(one.path)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: dict[str, str] = {}
    for statement in body:
        if not _collect(statement, names, one, by_name, depth):
            return None
    if "__all__" not in names:
        return {name: value for name, value in names.items() if not name.startswith("_")}
    listed = _listed(body)
    return None if listed is None else {name: value for name, value in names.items() if name in listed}


def _module(module: str, file: _File, by_name: Mapping[str, list[_File]]) -> _File | None:
    """The one file or package that a module's name in a file refers to."""
    parts = [part for part in module.split(".") if part]
    up = len(module) - len(module.lstrip("."))
    folder = os.path.dirname(os.path.abspath(file.path))
    for _ in range(up - 1):
        folder = os.path.dirname(folder)
    exactly = up or len(parts) == 1
    wanted = os.path.join(folder, *parts) if exactly else os.sep + os.path.join(*parts) if parts else ""
    found = []
    for other in by_name.get(parts[-1], ()) if parts else ():
        base = os.path.splitext(os.path.abspath(other.path))[0]
        base = os.path.dirname(base) if other.stem == "__init__" else base
        if base == wanted if exactly else base.endswith(wanted):
            found.append(other)
    return found[0] if len(found) == 1 else None


def _listed(body: Iterable[ast.stmt]) -> frozenset[str] | None:
    """The names in ``__all__`` if it is a single list of strings; else None."""
    about = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == "__all__"]
    for statement in body:
        if len(about) == 1 and isinstance(statement, ast.Assign) and statement.targets == about:
            try:
                return frozenset(ast.literal_eval(statement.value))
            except (ValueError, TypeError):
                return None
    return None


def _collect(statement: ast.stmt, names: dict[str, str], file: _File, by_name: Mapping[str, list[_File]], depth: int) -> bool:
    """Add the names that a statement binds; return whether all of them are known."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            top = alias.name.partition(".")[0]
            names[alias.asname or top] = alias.name if alias.asname else top
    elif isinstance(statement, ast.ImportFrom):
        module = "." * statement.level + (statement.module or "")
        for alias in statement.names:
            if alias.name == "*":
                inner = _bound(module, file, by_name, depth - 1)
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
