"""The layout of a rewritten call: lines aligned with its bracket stay aligned, and no line exceeds the file's own maximum."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from gradclip.source.source import Edit, Source, once

__all__ = ["aligned", "fits", "indent"]

_SHORTEST, _LONGEST = 79, 120  # usual limits for the length of a line


def indent(node: cst.CSTNode, source: Source) -> str:
    """The white space at the start of a node's first line."""
    start = source.line_start(source.start(node))
    line = source.data[start : source.next_line(start)].decode()
    return line[: len(line) - len(line.lstrip())]


def fits(node: cst.CSTNode, growth: int, source: Source) -> bool:
    """Whether the last line of a node can grow by ``growth`` characters."""
    start = source.line_start(source.end(node))
    line = source.data[start : source.next_line(start)].decode().rstrip()
    return len(line) + growth <= max(_SHORTEST, min(_longest(source), _LONGEST))


@once
def _longest(source: Source) -> int:
    return max((len(line) for line in source.text.splitlines()), default=0)


def aligned(call: cst.Call, growth: int, edits: Iterable[Edit], source: Source) -> list[Edit]:
    """The edits that realign the lines of a call below the text after its bracket, if this text moves."""
    if not call.args or not growth:
        return []
    first, end = source.start(call.args[0]), source.end(call)
    line = source.line_start(first)
    if line != source.line_start(source.end(call.func)):
        return []  # a hanging indent
    column = first - line
    taken = [(edit.start, edit.end) for edit in edits]
    moved = []
    while (line := source.next_line(line)) < end:
        text = source.data[line : source.next_line(line)]
        space = len(text) - len(text.lstrip(b" "))
        clear = not any(start <= line + space and line <= stop for start, stop in taken if start != stop)
        if space == column and clear and not _in_string(line, source):
            moved.append(Edit(line, line + space, " " * max(0, space + growth)))
    return moved


def _in_string(offset: int, source: Source) -> bool:
    """Whether a line starts within a multi-line string."""
    strings = (node for node in source.all(cst.SimpleString) if "\n" in node.value or "\r" in node.value)
    return any(source.start(node) < offset < source.end(node) for node in strings)
