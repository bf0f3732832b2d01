"""A Jupyter notebook read as one program; the changes of the program go back into the notebook.

The code cells share their names: a later cell calls what the first one imports, so the program joins all cells. A name replaces
each line that Python cannot parse, such as ``%matplotlib inline`` and ``!pip install``, until the program is split into cells
again. In the file, only the strings with changed code change; every other byte stays.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gradclip.migrate import spans
from gradclip.migrate.magics import Magics
from gradclip.migrate.model import SourceError

__all__ = ["Notebook", "Unread"]

_OURS = "__gradclip_"
_CLIP = re.compile(r"[\w.]*\b(?:clip_grad\w*|clip_by_\w+|(?:ClipGrad|GradientClip)By\w+|(?:global_)?clipnorm|clipvalue)\s*[(=]")
_END = "__gradclip_end__"  #: after all cells, with the names that magics use, so that their imports stay
_MARKER = "__gradclip_cell_{}__"  #: between the cells; a statement, so that removing a neighbour does not remove it


class Unread(NamedTuple):
    """A possible clipping call in a magic, which the codemod does not read."""

    cell: int
    line: int  #: in the cell, from 1
    column: int
    text: str


@dataclass(slots=True)
class _Cell:
    """A code cell."""

    number: int  #: from 1, over all cells
    path: spans.Path  #: path of its source in the file
    text: str
    head: str = ""  #: the lines at the top; additions come after them
    line: int = 0  #: the program's line at which its body begins


@dataclass(slots=True)
class Notebook:
    r"""One notebook.

    >>> notebook = Notebook(r'{"cells": [{"cell_type": "code", "source": ["%time\n", "x = 1"]}]}')
    >>> notebook.program
    'x = 1'
    >>> print(notebook.replaced("x = 2"))
    {"cells": [{"cell_type": "code", "source": ["%time\n", "x = 2"]}]}
    """

    text: str
    program: str = field(init=False, default="")
    unread: list[Unread] = field(init=False, default_factory=list)
    _end: int = field(init=False, default=0)  #: the program's line at which the text from outside the notebook begins
    _cells: list[_Cell] = field(init=False, default_factory=list)
    _magics: Magics = field(init=False, default_factory=Magics)

    def __post_init__(self) -> None:
        if _OURS in self.text:
            raise SourceError(f"has names that begin with {_OURS}, which gradclip reserves for reading notebooks")
        parts = []
        line = 1
        names: set[str] = set()
        for number, path, text in _code(self.text):
            head, body = self._magics.hide(text)
            hidden = list(_hidden(text, body))
            names.update(name for _, magic in hidden for name in re.findall(r"\w+", magic))
            self.unread += _clips(number, hidden)
            if body.strip():
                if self._cells:
                    parts.append(_MARKER.format(number) + "\n")
                    line += 1
                self._cells.append(_Cell(number, path, text, head, line))
                parts.append(body + "\n")
                line += body.count("\n") + 1
        self._end = line
        self.program = "".join(parts)[:-1]
        if names and (kept := sorted(_imported(self.program) & names)):
            self.program += f"\n{_END}[{', '.join(kept)}]"

    def has(self, line: int) -> bool:
        """Whether a line of the program is from the notebook."""
        return line < self._end

    def locate(self, line: int) -> tuple[int, int]:
        """The cell of a line of the program, counted from 1 over all cells, and the line in the cell."""
        cell = max((cell for cell in self._cells if cell.line <= line), key=lambda cell: cell.line)
        return cell.number, line - cell.line + 1 + cell.head.count("\n")

    def replaced(self, program: str) -> str:
        """The notebook with the cells of a changed program.

        Raises:
            SourceError: if the program no longer has the same cells.
        """
        bodies = self._apart(program)
        changes = []
        for cell, body in zip(self._cells, bodies, strict=True):
            text = cell.head + self._magics.show(body)
            if text != cell.text:
                changes.append((cell.path, text))
        return spans.replaced(self.text, changes)

    def _apart(self, program: str) -> list[str]:
        """Split a program into the bodies of the cells."""
        bodies = []
        rest = re.sub(rf"\n{_END}\[.*\]$", "", program)
        for cell in self._cells[1:]:
            found = re.split(rf"^{_MARKER.format(cell.number)}(?:\r?\n|\Z)", rest, maxsplit=1, flags=re.MULTILINE)
            if len(found) != 2:
                raise SourceError(f"cell {cell.number} cannot be found again in the rewritten program")
            bodies.append(found[0].removesuffix("\n"))
            rest = found[1]
        return [*bodies, rest]


def _hidden(text: str, body: str) -> Iterator[tuple[int, str]]:
    """The lines of a cell that the program lacks, numbered from 1."""
    written, read = text.split("\n"), body.split("\n")
    read = [""] * (len(written) - len(read)) + read
    return ((number, old) for number, (old, new) in enumerate(zip(written, read, strict=True), 1) if old != new)


def _clips(cell: int, lines: list[tuple[int, str]]) -> Iterator[Unread]:
    for number, line in lines:
        if found := _CLIP.search(line):
            yield Unread(cell, number, found.start() + 1, line[found.start() :].rstrip())


def _imported(program: str) -> set[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the cells' strings do not matter here
            nodes = list(ast.walk(ast.parse(program)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()  # the parser of the program reports the error
    aliases = [alias for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names]
    return {alias.asname or alias.name.partition(".")[0] for alias in aliases}


def _code(text: str) -> Iterator[tuple[int, spans.Path, str]]:
    """The number, the path and the text of each code cell, if the notebook's language is Python."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise SourceError(f"not a notebook: {error.msg}", error.lineno, error.colno) from None
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise SourceError("not a notebook of format 4: it has no list of cells")
    if not _language(document.get("metadata")).startswith(("python", "ipython")):
        return
    for i, cell in enumerate(document["cells"]):
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source")
            lines = [source] if isinstance(source, str) else source
            if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
                raise SourceError(f"not a notebook of format 4: cell {i + 1} has no source")
            yield i + 1, ("cells", i, "source"), "".join(lines)


def _language(metadata: Any) -> str:
    """The language of the notebook: Python, unless the metadata names another."""
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        inner = metadata.get(key) if isinstance(metadata, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get(name), str):
            return str(inner[name]).lower()
    return "python"
