"""Remove items from a list with commas: arguments of a call, names of an import."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import libcst as cst

from gradclip.source.source import Edit, Source

__all__ = ["without"]

Item = cst.Arg | cst.ImportAlias


def without(items: Sequence[Item], unwanted: Collection[Item], source: Source) -> list[Edit]:
    """The edits that remove items, each with its comma; the comments around an item stay."""
    edits: list[Edit] = []
    whole_line = False
    for number, item in enumerate(items):
        if not any(item is other for other in unwanted):
            whole_line = False
            continue
        was_whole, made = whole_line, _line(item, source)
        whole_line = bool(made)
        if not made:
            followed = any(not any(after is other for other in unwanted) for after in items[number + 1 :])
            after = items[number + 1] if followed else None
            before = items[number - 1] if number and not was_whole else None
            made = _in_line(item, before, after, source)
        edits += made
    return edits


def _comma(item: Item, source: Source) -> int | None:
    """The offset of the comma after an item."""
    if not isinstance(item.comma, cst.Comma):
        return None
    space = item.comma.whitespace_before
    return source.start(item.comma) if space.empty else source.end(space)


def _line(item: Item, source: Source) -> list[Edit]:
    """Remove the lines of an item that has its own, except a comment after it; no edits for an item that shares a line."""
    comma = _comma(item, source)
    start, end = source.start(item), source.end(item) if comma is None else comma + 1
    line, following = source.line_start(start), source.next_line(end)
    rest = source.data[end:following].strip()
    continued = source.data[:line].rstrip(b"\r\n").endswith(b"\\")
    if source.data[line:start].strip() or (rest and not rest.startswith(b"#")) or following == len(source.data) or continued:
        return []
    if b"#" in source.data[source.end(item) : end]:
        return []
    return [Edit(start, source.data.index(b"#", end), "") if rest else Edit(line, following, "")]


def _in_line(item: Item, before: Item | None, after: Item | None, source: Source) -> list[Edit]:
    """Remove up to the next item or from the previous one; if a comment lies between, remove only the item and its comma."""
    start, end = source.span(item)
    comma = _comma(item, source)
    if after is not None and b"#" not in source.data[end : source.start(after)]:
        return [Edit(start, source.start(after), "")]
    if after is None and before is not None and b"#" not in source.data[source.end(before) : start]:
        return [Edit(source.end(before), end, "")]
    return [Edit(start, end, ""), *([] if comma is None else [Edit(comma, comma + 1, "")])]
