"""The mistakes that rounds show, as findings at the calls of a source."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from gradclip.rounds import Found
from gradclip.source.codes import CODES
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.reading import Place, Reading, follow, reading
from gradclip.source.source import Source, once

__all__ = ["check", "elsewhere", "findings", "is_lost"]


@once
def read(context: Context) -> Reading:
    """What the rounds of a source show."""
    return reading(context.source.text, context.options.path, follow(context.options.path))


def check(found: ApiCall) -> Finding | None:
    """The first mistake of a call."""
    return next(iter(findings(found)), None)


def findings(found: ApiCall) -> Sequence[Finding]:
    """The mistakes of a call, each code once."""
    return _by_call(found.context).get(found.call, ())


def elsewhere(context: Context, known: frozenset[cst.CSTNode]) -> Iterator[tuple[cst.CSTNode, Finding]]:
    """The mistakes at other calls: a clip of a library, a step, a norm."""
    for node, made in _by_call(context).items():
        if node not in known:
            yield from ((node, one) for one in made)


def is_lost(found: ApiCall) -> bool:
    """Whether no way through the program shows the step of a clip."""
    return _span(found.call, found.context.source) not in {_of(x, found.context.source) for x in read(found.context).followed}


@once
def _by_call(context: Context) -> Mapping[cst.CSTNode, list[Finding]]:
    made = read(context).found
    if not made:
        return {}
    source = context.source
    nodes = {_span(node, source): node for kind in (cst.BinaryOperation, cst.Call) for node in source.any(kind)}
    by_node: dict[cst.CSTNode, list[Finding]] = defaultdict(list)
    for one in made:
        node = nodes.get(_of(one.event.where, source)) if isinstance(one.event.where, Place) else None
        if node is not None:
            by_node[node].append(_finding(one))
    return by_node


def _finding(one: Found) -> Finding:
    where = one.event.where
    other = where.file if isinstance(where, Place) else None
    told = f" It is in {other.name}, line {where.inner[0]}." if isinstance(where, Place) and other is not None else ""
    return Finding(one.code, (one.reason or CODES[one.code].reason) + told, one.advice)


def _span(node: cst.CSTNode, source: Source) -> tuple[int, int]:
    return source.span(node)


def _of(place: Place, source: Source) -> tuple[int, int]:
    """The span of a place, in bytes."""
    lines = _lines(source)
    (line, column), (last, end) = (place.line, place.column), place.end
    return lines[line - 1] + column, lines[last - 1] + end


@once
def _lines(source: Source) -> list[int]:
    """The starts of the lines, in bytes, as Python counts them."""
    return [0, *(found.end() for found in re.finditer(rb"\r\n|\r|\n", source.data))]
