"""IPython's additions to Python in a cell (``%time``, ``!ls``, ``help?``): names replace them so that Python can parse it.

An import from ``__future__`` is one: it begins a cell, which need not be the first.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

__all__ = ["Magics", "parsed"]

#: cell magics whose body is Python that runs in the notebook
_PYTHON = frozenset({"capture", "debug", "lprun", "memit", "mprun", "prun", "time", "timeit"})
_LINE = re.compile(
    r"""(?P<before>\s*)(?P<magic>[%!?,;/].*|(?:[%\w.*]+)\?{1,2}\s*$"""  # %cd .., !ls, ?f, /f 1, f?, f??
    r"""|from[ ]__future__[ ]import[ ][\w, ]+(?:\#.*)?)"""
    r"""|(?P<target>\s*[^=\n"'#]*=\s*)(?P<right>[%!].*)"""  # files = !ls
)
_PIECE = re.compile(
    r'''#.*|"""|\'\'\'|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|[\[({]|[\])}]'''
)  # comments, strings, brackets
_NAME = "__joined_magic_{}__"
_HIDDEN = re.compile(r"(?:# )?__joined_magic_(\d+)__")


class Magics:
    """The magics of one notebook.

    >>> magics = Magics()
    >>> magics.hide("%matplotlib inline\\nx = 1\\nfiles = !ls\\n")
    ('%matplotlib inline\\n', 'x = 1\\nfiles = __joined_magic_1__\\n')
    >>> magics.show('y = 1\\nfiles = __joined_magic_1__\\n')
    'y = 1\\nfiles = !ls\\n'
    """

    def __init__(self) -> None:
        self._hidden: list[str] = []

    def hide(self, text: str) -> tuple[str, str]:
        """Split a cell into the magics at its top, unchanged, and a body that Python can parse.

        If a magic passes the cell to another language, the top is the entire cell.
        """
        if parsed(text) is not None and "from __future__ import" not in text:
            return "", text
        lines = text.splitlines(keepends=True)
        name = re.match(r"\s*%%(\w+)", text)
        if name and name[1] not in _PYTHON:
            return text, ""
        hidden = list(self._each(lines))
        top = 0
        for i, (line, shown) in enumerate(zip(hidden, lines, strict=True)):
            if line != shown:
                top = i + 1
            elif line.strip() and not line.lstrip().startswith("#"):
                break
        return "".join(lines[:top]), "".join(hidden[top:])

    def show(self, text: str) -> str:
        """The text with the magics restored."""
        return _HIDDEN.sub(lambda found: self._hidden[int(found[1])], text)

    def _each(self, lines: list[str]) -> Iterator[str]:
        state = _State()
        goes_on = False
        for line in lines:
            body = line.rstrip("\r\n")
            found = None if state.inside else _LINE.fullmatch(body)
            if goes_on:
                before, magic = "# ", body  # a comment is valid in any column
            elif found:
                before, magic = (found["before"], found["magic"]) if found["magic"] else (found["target"], found["right"])
            else:
                state.read(body)
                yield line
                continue
            goes_on = body.endswith("\\")
            yield before + _NAME.format(len(self._hidden)) + line[len(body) :]
            self._hidden.append(magic)


class _State:
    """The state of Python's syntax at the end of a line."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._joined = False

    @property
    def inside(self) -> bool:
        """Whether the next line continues the same statement."""
        return bool(self._depth > 0 or self._quote or self._joined)

    def read(self, line: str) -> None:
        here, piece = 0, ""
        while here < len(line):
            found = (re.compile(rf"\\.|{self._quote}") if self._quote else _PIECE).search(line, here)
            if not found:
                break
            here = found.end()
            piece = found[0]
            if piece == self._quote:
                self._quote = ""
            elif not self._quote and piece in ('"""', "'''"):
                self._quote = piece
            elif not self._quote:
                self._depth += (piece in "([{") - (piece in ")]}")
        self._joined = line.endswith("\\") and not piece.startswith("#")


def parsed(text: str) -> ast.Module | None:
    """The tree of a text; None if it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the cells' strings do not matter here
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
