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
    for name in _fields(node.__class__):
        value = getattr(node, name)
        if value is None or value.__class__ is str:
            continue
        if value.__class__ is tuple or value.__class__ is list:
            yield from (item for item in value if _is_node(item.__class__))
        elif _is_node(value.__class__):
            yield value


@functools.cache
def _fields(cls: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a node that can contain relevant nodes, not layout."""
    names = [field.name for field in dataclasses.fields(cls)]
    return tuple(name for name in names if not name.startswith(_LAYOUT) and "whitespace" not in name)


@functools.cache
def _is_node(cls: type) -> bool:
    """Whether a class is one of nodes: asking an abstract class for each value takes as long as parsing."""
    return issubclass(cls, cst.CSTNode)
