"""The nodes below a node of LibCST's tree, without the layout: white space, commas, parentheses."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import libcst as cst

__all__ = ["children"]

_LAYOUT = (
    "whitespace",
    "lpar",
    "rpar",
    "leading_lines",
    "lines_after",
    "comma",
    "semicolon",
    "colon",
    "equal",
    "header",
    "footer",
)


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes in the fields of a node, in the order of the text."""
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (item for item in value if isinstance(item, cst.CSTNode))


@functools.cache
def _fields(cls: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a node that can contain relevant nodes, not layout."""
    names = [field.name for field in dataclasses.fields(cls)]
    return tuple(name for name in names if not name.startswith(_LAYOUT) and "whitespace" not in name)
