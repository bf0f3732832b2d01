"""What a rewritten clip leaves behind: whether its parts still mean the same there, and lines that nothing reads any more."""

from __future__ import annotations

import io
import re
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from gradclip.migrate.byhand.certain import LOOPS
from gradclip.migrate.byhand.exact import Exact
from gradclip.migrate.byhand.guards import without_guard
from gradclip.source.byhand.algebra import Form
from gradclip.source.found import Context
from gradclip.source.source import Edit, Source

__all__ = ["Remains", "comments", "remains"]


@dataclass(frozen=True, slots=True)
class Remains:
    """What a rewrite removes beside its site."""

    edits: Sequence[Edit]
    norm: str  #: what gets the norm from the call, since something reads it later; "" for nothing
    text: str  #: the removed lines


def remains(site: cst.CSTNode, call: str, norm: Form | None, exact: Exact, context: Context) -> Remains | None:
    """The code that goes because only the site read it; None if a part of it may have changed before the site.

    Args:
        site: the clip.
        call: the text that stands at the site afterwards: what it reads stays.
        norm: the norm, if the call can return it.
        exact: it has just read the site.
        context: the source.
    """
    source, certain = context.source, exact.certain
    around = {site, *source.ancestors(site)}
    inner = [place for place in exact.read if site in source.ancestors(place)] + _targets(site, source)
    if any(not _is_in(use, [source.span(site)], source) for place in inner for use in certain.readers(place)):
        return None
    here = [place for place in exact.read if source.function(place) in around and place not in inner]
    loop = next((one for one in source.ancestors(site) if isinstance(one, LOOPS)), None)
    if loop is not None and any(loop not in source.ancestors(place) for place in {*here} - exact.made_before()):
        return None
    if any(_is_bound_again(node, site, context) for node in exact.opaque):
        return None
    return _removed(site, [place for place in here if not _reads(call, place)], norm, exact, source)


def _is_in(node: cst.CSTNode, spans: Sequence[tuple[int, int]], source: Source) -> bool:
    return any(start <= source.start(node) < end for start, end in spans)


def _targets(site: cst.CSTNode, source: Source) -> list[cst.CSTNode]:
    """The variables of a loop that is, or is in, a statement."""
    loops = source.between(cst.For, *source.span(site))
    return [one for loop in loops for one in source.between(cst.Name, *source.span(loop.target))]


def _reads(call: str, place: cst.CSTNode) -> bool:
    name = _name(place)
    return name is not None and re.search(rf"\b{re.escape(name.value)}\b", call) is not None


def _is_bound_again(node: cst.BaseExpression, site: cst.CSTNode, context: Context) -> bool:
    """Whether a name in a part is bound between the part and the site, or an attribute is assigned to."""
    source, resolver = context.source, context.resolver
    start, stop, end = source.start(node), source.start(site), source.end(node)
    for name in source.between(cst.Name, start, end):
        statement = source.statement(site)
        for place in resolver.assigned_at(name):
            at = source.start(place)
            if end <= at < stop and statement not in source.ancestors(place):
                return True
    code = source.code(node)
    targets = source.between(cst.AssignTarget, start, stop)
    return isinstance(node, cst.Attribute) and any(source.code(one.target) == code for one in targets)


def _removed(site: cst.CSTNode, here: Sequence[cst.CSTNode], norm: Form | None, exact: Exact, source: Source) -> Remains:
    """Remove the lines whose names nothing reads any more, but their comments; the norm may be read from the call."""
    spans, left = [source.span(site)], _by_name(here, source)
    edits, wanted = [], ""
    again = True
    while again:
        again = False
        for name, places in list(left.items()):
            units = _units(places, here, exact, source)
            inside = [*spans, *((source.start(one), source.end(one)) for one in units or ())]
            uses = [one for place in places for one in exact.certain.readers(place) if not _is_in(one, inside, source)]
            read = bool(uses) or isinstance(places[-1], cst.Attribute)
            if units is None or (read and (wanted or not _is_last(places[-1], uses, norm, site, exact, source))):
                continue
            wanted = name if read else wanted
            del left[name]
            again = True
            for unit in units:
                if not _is_in(unit, spans, source):
                    start, end = source.line_start(source.start(unit)), source.next_line(source.end(unit))
                    spans.append((start, end))
                    edits.append(Edit(start, end, _comments(start, end, source)))
    return Remains(edits, wanted, "".join(source.data[edit.start : edit.end].decode() for edit in edits))


def _by_name(places: Sequence[cst.CSTNode], source: Source) -> dict[str, list[cst.CSTNode]]:
    found: dict[str, list[cst.CSTNode]] = {}
    for place in sorted(places, key=source.start):
        named = _name(place)
        if named is not None or isinstance(place, cst.Attribute):
            found.setdefault(source.code(place if named is None else named), []).append(place)
    return found


def _is_last(
    place: cst.CSTNode, uses: Sequence[cst.CSTNode], norm: Form | None, site: cst.CSTNode, exact: Exact, source: Source
) -> bool:
    """Whether a binding is of the norm, and nothing reads it between the binding and the site, or without the site."""
    value = exact.certain.value(place)
    if norm is None or value is None or exact.of(value) != norm:
        return False
    if source.within(place, cst.IndentedBlock, cst.Module) is not source.within(site, cst.IndentedBlock, cst.Module):
        return False
    leaves: list[type[cst.CSTNode]] = [cst.Break, cst.Continue, *([cst.Return] if isinstance(place, cst.Attribute) else [])]
    if any(source.between(kind, source.start(place), source.start(site)) for kind in leaves):
        return False
    return not any(source.start(place) <= source.start(use) < source.start(site) for use in uses)


def _comments(start: int, end: int, source: Source) -> str:
    text = source.data[start:end].decode()
    indent = text[: len(text) - len(text.lstrip())]
    return "".join(f"{indent}{comment}{source.newline}" for comment in comments(text))


def comments(text: str) -> Iterator[str]:
    """The comments in the replaced text; the rewrite preserves them."""
    for token in tokenize.generate_tokens(io.StringIO(textwrap.dedent(text)).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def _name(place: cst.CSTNode) -> cst.Name | None:
    return place.name if isinstance(place, cst.FunctionDef) else place if isinstance(place, cst.Name) else None


def _units(
    places: Sequence[cst.CSTNode], here: Sequence[cst.CSTNode], exact: Exact, source: Source
) -> list[cst.CSTNode] | None:
    """The lines of some bindings, if all of them can go."""
    units = [_unit(place, here, exact, source) for place in places]
    return None if None in units else list(dict.fromkeys(unit for unit in units if unit is not None))


def _unit(place: cst.CSTNode, here: Sequence[cst.CSTNode], exact: Exact, source: Source) -> cst.CSTNode | None:
    """The lines of a binding that can go: ``n = ...``, or the loop of a total that does nothing else."""
    if isinstance(place, cst.FunctionDef):
        return place if isinstance(source.function(place), cst.FunctionDef) else None  # others may import it
    if not isinstance(source.parents.get(place), cst.AugAssign):
        return exact.certain.statement(place)
    loop = source.within(place, cst.For)
    lines: Sequence[cst.CSTNode] = [loop] if loop is not None else []
    while len(lines) == 1 and isinstance(one := lines[0], (cst.For, cst.If)) and one.orelse is None:
        lines = without_guard(one) if isinstance(one, cst.For) else one.body.body
    bound = [one for one in here if loop is not None and loop in source.ancestors(one)]
    if loop is None or not {source.within(one, cst.SimpleStatementLine) for one in bound}.issuperset(lines):
        return None
    names = [*_targets(loop, source), *(one for one in bound if one is not place)]
    read = (use for one in names for use in exact.certain.readers(one) if not _is_in(use, [source.span(loop)], source))
    return loop if all(len(line.body) == 1 for line in lines) and next(read, None) is None else None  # type: ignore[attr-defined]
