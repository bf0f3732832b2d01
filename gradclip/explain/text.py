"""The printed output of ``gradclip explain``."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator

from gradclip.explain.compare import Comparison
from gradclip.explain.equivalents import EXACT, NEAREST, NONE, ROUNDING, SELF
from gradclip.explain.explanation import Explanation

__all__ = ["comparison_text", "explanation_text"]

_LABEL, _INNER = 13, 12  # the widths of the left column, outside and inside a block
_MARKS = {EXACT: "=", ROUNDING: "~", NEAREST: "!", NONE: "-", SELF: " "}
_LEGENDS = {EXACT: "exact", ROUNDING: "within rounding", NEAREST: "nearest", NONE: "no native equivalent: use gradclip"}
_LEGEND = ", ".join(f"{_MARKS[mark]} {legend}" for mark, legend in _LEGENDS.items())


def explanation_text(explanation: Explanation, width: int) -> str:
    """An explanation as text."""
    return "\n".join(_lines(explanation, width))


def _lines(found: Explanation, width: int) -> Iterator[str]:
    about = ", ".join(filter(None, (found.code, found.status)))
    yield from _wrapped(f"{found.name}  ({about})", width, "")
    yield from _wrapped(found.note, width, "  ")
    yield ""
    yield from _row("called", found.called, width)
    yield from _row("refused", found.refused, width)
    for label, line in zip(["computes", *[""] * len(found.formula)], found.formula, strict=False):
        yield from _row(label, line, width)
    yield from _row("over", found.scope, width)
    yield from _row("epsilon", found.epsilon, width)
    yield from _row("returns", found.returns, width)
    for label, edge in zip(["edges", *[""] * len(found.edges)], found.edges, strict=False):
        natively = f" (natively: {edge.native})" if edge.native else ""
        yield from _row(label, f"{edge.case:<{_INNER}} {edge.does}{natively}", width, _INNER + 1)
    if found.equivalents:
        yield ""
        yield from _row("the same in", _LEGEND, width)
        yield from _equivalents(found, width)
    yield ""
    yield from _row("source", found.source, width)
    yield from _row("link", found.link, width)


def _equivalents(found: Explanation, width: int) -> Iterator[str]:
    for same in found.equivalents:
        code = same.code or "this call"
        yield from _row("", f"{_MARKS[same.mark]} {same.framework:<{_INNER - 2}} {code}", width, _INNER + 1)
        for line in filter(None, (*same.differs, same.note)):
            yield from _row("", f"{'':<{_INNER}} {line}", width, _INNER + 1)
    if any(same.mark == NONE or "(grads, rule" in same.code for same in found.equivalents):
        yield from _row("", f"{'  where rule':<{_INNER}} = {found.rule}", width, _INNER + 1)


def comparison_text(comparison: Comparison, width: int) -> str:
    """A comparison as text."""
    return "\n".join(_sides(comparison, width))


def _sides(found: Comparison, width: int) -> Iterator[str]:
    half = (width - _LABEL - 4) // 2
    yield f"  {'':<{_LABEL}}{found.first:<{half}}  {found.second}".rstrip()
    for difference in found.differences:
        left, right = ([*_wrapped(side or "-", half, "")] for side in (difference.first, difference.second))
        for word, a, b in itertools.zip_longest([difference.what], left, right, fillvalue=""):
            yield f"  {word:<{_LABEL}}{a:<{half}}  {b}".rstrip()
    if not found.differences:
        yield "  They do the same."
    yield ""
    if found.example is None:
        yield f"  {found.same}"
        return
    example = found.example
    label = max(len(found.first), len(found.second), len("gradients")) + 2
    one, other = example.limits
    limits = f"a limit of {one:g}" if one == other else f"limits of {one:g} and {other:g}"
    yield "  An example:" if one == other == math.inf else f"  An example, with {limits}:"
    rows = (("gradients", example.gradients), ("parameters", example.parameters), (found.first, example.first))
    for word, numbers in (*rows, (found.second, example.second)):
        if numbers:
            yield f"    {word:<{label}}{numbers}"


def _row(label: str, text: str, width: int, hanging: int = 0) -> Iterable[str]:
    """A labelled paragraph; no lines for an empty text."""
    start = f"  {label:<{_LABEL}}"
    indent = " " * (len(start) + hanging)
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _wrapped(text: str, width: int, indent: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield from textwrap.wrap(
            line, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
