"""The mistakes that rounds show, as findings at the calls of a source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from gradclip.source.codes import wanted
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.model import Site
from gradclip.source.reading import Place, Reading, follow, reading, reason, told
from gradclip.source.source import once

__all__ = ["check", "elsewhere", "findings", "hidden", "is_lost"]


@once
def read(context: Context) -> Reading:
    """What the rounds of a source show."""
    source = context.source
    return reading(source.text, context.options.path, follow(context.options.path), source.tree)


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


def hidden(context: Context) -> Iterator[Site]:
    """The mistakes where the tree has no call: in functions that it leaves out, in statements of other kinds."""
    lines = context.source.text.encode().splitlines()
    for one in read(context).found:
        where = one.event.where
        if isinstance(where, Place) and _node(where, context) is None and wanted(context.options, one.code):
            yield told.mistake(one, where, lines)


def is_lost(found: ApiCall) -> bool:
    """Whether no way through the program shows the step of a clip."""
    return found.call not in _followed(found.context)


@once
def _followed(context: Context) -> frozenset[cst.CSTNode]:
    """The calls that clip before a step."""
    return frozenset(node for x in read(context).followed if (node := _node(x, context)) is not None)


@once
def _by_call(context: Context) -> Mapping[cst.CSTNode, list[Finding]]:
    by_node: dict[cst.CSTNode, list[Finding]] = defaultdict(list)
    for one in read(context).found:
        node = _node(one.event.where, context) if isinstance(one.event.where, Place) else None
        if node is not None:
            by_node[node].append(Finding(one.code, reason(one), one.advice))
    return by_node


def _node(place: Place, context: Context) -> cst.CSTNode | None:
    return context.source.at((place.line, place.column), place.end)
