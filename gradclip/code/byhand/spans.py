"""The nodes in a part of the text."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TypeVar

import libcst as cst

from gradclip.code.source import Source

__all__ = ["between"]

Node = TypeVar("Node", bound=cst.CSTNode)


def between(source: Source, kind: type[Node], start: int, stop: int) -> Sequence[Node]:
    """The nodes of a type that start in a part of the text."""
    ordered: list[Node] = source.once((between, kind), lambda: source.all(kind))
    first, last = (bisect.bisect_left(ordered, at, key=source.start) for at in (start, stop))
    return ordered[first:last]
