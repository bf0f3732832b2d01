"""The nodes below a node of LibCST's tree, without the layout: white space, commas, brackets, dots."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import libcst as cst

__all__ = ["children"]

_LAYOUT = (
    "whitespace",
    "lbracket",
    "rbracket",
    "lbrace",
    "rbrace",
    "dot",
    "relative",
    "first_colon",
    "second_colon",
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
#: the fields that LibCST declares in another order than that of the text: the ones that come first there
_FIRST: Mapping[type[cst.CSTNode], tuple[str, ...]] = {
    cst.Arg: ("star", "keyword"),
    cst.ClassDef: ("decorators", "name", "type_parameters", "bases", "keywords"),
    cst.ExceptHandler: ("type", "name"),
    cst.ExceptStarHandler: ("type", "name"),
    cst.FunctionDef: ("decorators", "asynchronous", "name", "type_parameters", "params", "returns"),
    cst.IfExp: ("body",),
    cst.MatchCase: ("pattern", "guard"),
    cst.Parameters: ("posonly_params", "posonly_ind", "params", "star_arg", "kwonly_params"),
    cst.With: ("asynchronous",),
}


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
    """The fields of a node that can contain relevant nodes, not layout, in the order of the text."""
    first = _FIRST.get(cls, ())
    names = [*first, *(field.name for field in dataclasses.fields(cls) if field.name not in first)]
    return tuple(name for name in names if not name.startswith(_LAYOUT) and "whitespace" not in name)


@functools.cache
def _is_node(cls: type) -> bool:
    """Whether a class is one of nodes: asking an abstract class for each value takes as long as parsing."""
    return issubclass(cls, cst.CSTNode)
