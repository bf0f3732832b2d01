"""Replace strings in a JSON document and preserve every other byte: spaces, the order of keys, escapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

__all__ = ["Path", "replaced"]

Path = tuple[str | int, ...]  #: the keys and the indices from the root to a value
_Unit = tuple[str, str]  #: a character and its raw JSON form

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKET = re.compile(rf"{_STRING.pattern}|[\[\]{{}}]", re.DOTALL)
_SCALAR = re.compile(r"[^\s,\]}]+")
_BLANK = re.compile(r"[\s,:]*")
_UNIT = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)


def replaced(text: str, changes: Sequence[tuple[Path, str]]) -> str:
    r"""The document with some strings replaced; a list of lines stays a list of lines.

    >>> print(replaced(r'{"a": ["x\n",  "\u00e9\n"], "b" : 1}', [(("a",), "y\né\n")]))
    {"a": ["y\n",  "\u00e9\n"], "b" : 1}

    Args:
        text: a valid JSON document.
        changes: the path of a string or of a list of strings, and the new string, in the order of the document.

    Returns:
        The document.
    """
    escape = text.isascii() and "\\u" in text  # json.dumps escapes by default
    parts = []
    done = 0
    for path, new in changes:
        start, end = _find(text, path)
        parts += [text[done:start], _written(text, start, end, new, escape)]
        done = end
    return "".join([*parts, text[done:]])


def _find(text: str, path: Path) -> tuple[int, int]:
    """The start and the end of the value at a path."""
    start = _after_blank(text, 0)
    end = _end(text, start)
    for key in path:
        inside = _members(text, start) if isinstance(key, str) else enumerate(_items(text, start))
        *_, (start, end) = (span for name, span in inside if name == key)  # if a key occurs twice, the last one counts
    return start, end


def _members(text: str, start: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """The keys of an object, and the spans of their values."""
    spans = _items(text, start)
    for key in spans:
        yield json.loads(text[slice(*key)]), next(spans)


def _items(text: str, start: int) -> Iterator[tuple[int, int]]:
    """The spans of the values in a list; for an object, of the keys and the values alternately."""
    here = _after_blank(text, start + 1)
    while text[here] not in "]}":
        end = _end(text, here)
        yield here, end
        here = _after_blank(text, end)


def _after_blank(text: str, start: int) -> int:
    found = _BLANK.match(text, start)
    return found.end() if found else start


def _end(text: str, start: int) -> int:
    """The end of the value that begins at ``start``."""
    if text[start] not in "[{":
        found = (_STRING if text[start] == '"' else _SCALAR).match(text, start)
        return found.end() if found else start
    depth = 0
    for found in _BRACKET.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if not depth:
            return found.end()
    return len(text)


def _written(text: str, start: int, end: int, new: str, escape: bool) -> str:
    """A string or a list of lines with new text; unchanged parts keep their raw form."""
    if text[start] == '"':
        return _quoted(_merged(_units(text[start + 1 : end - 1]), new, escape))
    spans = list(_items(text, start))
    units = _merged([unit for a, b in spans for unit in _units(text[a + 1 : b - 1])], new, escape)
    if not units:
        return "[]"
    before, after = text[start : spans[0][0]], text[spans[-1][1] : end]
    between = "," + (before[1:] or " ")
    if len(spans) > 1:
        between = text[spans[0][1] : spans[1][0]]
    return before + between.join(_quoted(line) for line in _lines(units)) + after


def _units(raw: str) -> list[_Unit]:
    return [(one if len(one) == 1 else json.loads(f'"{one}"'), one) for one in _UNIT.findall(raw)]


def _quoted(units: Sequence[_Unit]) -> str:
    return '"' + "".join(raw for _, raw in units) + '"'


def _lines(units: Sequence[_Unit]) -> list[Sequence[_Unit]]:
    ends = [i + 1 for i, (character, _) in enumerate(units) if character == "\n"]
    return [units[a:b] for a, b in pairwise([0, *ends, len(units)]) if a < b]


def _merged(old: Sequence[_Unit], new: str, escape: bool) -> list[_Unit]:
    """The new text; lines shared with the old text keep their raw form."""
    before, after = _lines(old), re.findall(r"[^\n]*\n|[^\n]+", new)
    words = ["".join(character for character, _ in line) for line in before]
    merged: list[_Unit] = []
    for _, a, b, c, d in SequenceMatcher(None, words, after, autojunk=False).get_opcodes():
        merged += _changed([unit for line in before[a:b] for unit in line], "".join(after[c:d]), escape)
    return merged


def _changed(old: Sequence[_Unit], new: str, escape: bool) -> list[_Unit]:
    """The new text; the common prefix and suffix keep their raw form."""
    most = min(len(old), len(new))
    same = [unit[0] == character for unit, character in zip(old, new, strict=False)]
    head = same.index(False) if False in same else most
    tail = 0
    while tail < most - head and old[-1 - tail][0] == new[-1 - tail]:
        tail += 1
    middle = [(one, json.dumps(one, ensure_ascii=escape)[1:-1]) for one in new[head : len(new) - tail]]
    return [*old[:head], *middle, *old[len(old) - tail :]]
