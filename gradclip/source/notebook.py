"""A Jupyter notebook read as one program; the changes of the program go back into the notebook.

The code cells share their names: a later cell calls what the first one imports, so the program joins all cells. A name replaces
each line that Python cannot parse, such as ``%matplotlib inline`` and ``!pip install``, until the program is split into cells
again. An indented cell, which IPython runs, becomes the body of an ``if``. A cell that does not parse is left out. In the file,
only the strings with changed code change; every other byte stays.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gradclip.core.errors import more
from gradclip.source import spans
from gradclip.source.codes import CODES
from gradclip.source.magics import Magics, parsed
from gradclip.source.model import Site, SourceError, Verdict

__all__ = ["Notebook", "code_cells"]

_OURS = "__joined_"  #: no word of a clip: else each notebook would be read as if it had one
_CLIP = re.compile(r"[\w.]*\b(?:clip_grad\w*|clip_by_\w+|(?:ClipGrad|GradientClip)By\w+|(?:global_)?clipnorm|clipvalue)\s*[(=]")
_END = "__joined_end__"  #: after all cells, with the names that magics use, so that their imports stay
_INDENTED = "if {}:"  #: IPython runs an indented cell
_MARKER = "__joined_cell_{}__"  #: between the cells; a statement, so that removing a neighbour does not remove it


@dataclass(slots=True)
class _Cell:
    """A code cell."""

    number: int  #: from 1, over all cells
    path: spans.Path  #: path of its source in the file
    text: str
    head: str = ""  #: the lines at the top; additions come after them
    line: int = 0  #: the program's line at which its body begins
    marker: str = ""  #: the line before its body, in the program


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
    #: a possible clip in a magic, or in a cell that does not parse: the codemod does not read it. Its cell, and its place there
    unread: list[tuple[int, Site]] = field(init=False, default_factory=list)
    _end: int = field(init=False, default=0)  #: the program's line at which the text from outside the notebook begins
    _cells: list[_Cell] = field(init=False, default_factory=list)
    _magics: Magics = field(init=False, default_factory=Magics)

    def __post_init__(self) -> None:
        if _OURS in self.text:
            raise SourceError(f"has names that begin with {_OURS}, which gradclip reserves for reading notebooks")
        cells = [(index, text, *self._magics.hide(text)) for index, text in code_cells(self.text)]
        forms = [_form(body) for *_, body in cells]
        some = any(form for form, (*_, body) in zip(forms, cells, strict=True) if body.strip())
        names: set[str] = set()
        parts: list[str] = []
        self._end = 1
        for (index, text, head, body), form in zip(cells, forms, strict=True):
            broken = some and not form
            head, body = (text, "") if broken else (head, body)
            hidden = list(_hidden(text, body))
            names.update(name for _, magic in hidden for name in re.findall(r"\w+", magic))
            self.unread += ((index + 1, site) for site in _clips(hidden, broken))
            if body.strip():
                marker = (form or "{}").format(_MARKER.format(index + 1)) if self._cells or form == _INDENTED else ""
                parts += [marker + "\n"] if marker else []
                self._cells.append(_Cell(index + 1, ("cells", index, "source"), text, head, self._end + bool(marker), marker))
                parts.append(body + "\n")
                self._end = self._cells[-1].line + body.count("\n") + 1
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
        bodies = [re.sub(rf"\n{_END}\[.*\]$", "", program)]
        for cell in self._cells:
            if cell.marker:
                found = re.split(rf"^{cell.marker}(?:\r?\n|\Z)", bodies[-1], maxsplit=1, flags=re.MULTILINE)
                if len(found) != 2:
                    raise SourceError(f"cell {cell.number} cannot be found again in the rewritten program")
                bodies[-1:] = found if len(bodies) > 1 or cell is not self._cells[0] else ["".join(found)]
        return [body.removesuffix("\n") for body in bodies[:-1]] + bodies[-1:]


def _hidden(text: str, body: str) -> Iterator[tuple[int, str]]:
    """The lines of a cell that the program lacks, numbered from 1."""
    written, read = text.split("\n"), body.split("\n")
    read = [""] * (len(written) - len(read)) + read
    return ((number, old) for number, (old, new) in enumerate(zip(written, read, strict=True), 1) if old != new)


def _form(body: str) -> str:
    """The marker before a body that parses, with a place for its name; "" if the body does not parse."""
    if parsed(body) is not None:
        return "{}"
    return _INDENTED if parsed(f"if 1:\n{body}") is not None else ""


def _clips(lines: list[tuple[int, str]], broken: bool) -> Iterator[Site]:
    magic = CODES["GM212"]
    said = (
        ("Its cell does not parse, so the command does not read it.", "Mend the cell.")
        if broken
        else (magic.reason, magic.advice)
    )
    for number, line in lines:
        if found := _CLIP.search(line):
            text = line[found.start() :].rstrip()
            yield Site(number, found.start() + 1, magic.code, Verdict.MANUAL, text, *said, more(magic.code))


def _imported(program: str) -> set[str]:
    tree = parsed(program)  # the parser of the program reports an error
    nodes = ast.walk(tree) if tree is not None else ()
    aliases = [alias for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names]
    return {alias.asname or alias.name.partition(".")[0] for alias in aliases}


def code_cells(text: str) -> Iterator[tuple[int, str]]:
    """The index and the source of each code cell, if the notebook's language is Python.

    Raises:
        SourceError: if the text is not a notebook.
    """
    try:
        document = json.loads(text, parse_int=lambda digits: 0)  # int() refuses 5000 digits
    except json.JSONDecodeError as error:
        raise SourceError(f"not a notebook: {error.msg}", error.lineno, error.colno) from None
    except RecursionError:
        raise SourceError("not a notebook: nested too deeply to be read") from None
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
            yield i, "".join(lines)


def _language(metadata: Any) -> str:
    """The language of the notebook: Python, unless the metadata names another."""
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        inner = metadata.get(key) if isinstance(metadata, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get(name), str):
            return str(inner[name]).lower()
    return "python"
