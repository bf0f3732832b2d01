"""What a rewritten clip leaves behind: whether its parts still mean the same there, and lines that nothing reads any more."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import libcst as cst

from gradclip.code.byhand.exact import Exact
from gradclip.code.byhand.reaching import LOOPS
from gradclip.code.byhand.spans import between
from gradclip.code.found import Context
from gradclip.code.source import Edit, Source, last_name

__all__ = ["remains"]


def remains(site: cst.CSTNode, call: str, exact: Exact, context: Context) -> list[Edit] | None:
    """The edits that remove what was read for a site and is read no more; None if a part may have changed before the site.

    ``call`` is the text that stands at the site afterwards: what it reads stays.
    """
    source = context.source
    around = {site, *source.ancestors(site)}
    here = [place for place in exact.read if source.function(place) in around]
    loop = next((one for one in source.ancestors(site) if isinstance(one, LOOPS)), None)
    if loop is not None and any(loop not in source.ancestors(place) for place in here):
        return None
    begin = min(map(source.start, here), default=source.start(site))
    if any(_is_bound_again(node, site, context) for node in exact.opaque) or _is_written(begin, site, here, exact, context):
        return None
    return _removed(site, [place for place in here if not _reads(call, place)], exact, context)


def _reads(call: str, place: cst.CSTNode) -> bool:
    name = _name(place)
    return name is not None and re.search(rf"\b{re.escape(name.value)}\b", call) is not None


def _is_bound_again(node: cst.BaseExpression, site: cst.CSTNode, context: Context) -> bool:
    """Whether a name in a part is bound between the part and the site, or an attribute is assigned to."""
    source, resolver = context.source, context.resolver
    start, stop, end = source.start(node), source.start(site), source.end(node)
    for name in between(source, cst.Name, start, end):
        statement = source.statement(site)
        for place in resolver.assigned_at(name):
            at = source.start(place)
            if end <= at < stop and statement not in source.ancestors(place):
                return True
    code = source.code(node)
    targets = between(source, cst.AssignTarget, start, stop)
    return isinstance(node, cst.Attribute) and any(source.code(one.target) == code for one in targets)


def _is_written(begin: int, site: cst.CSTNode, here: Sequence[cst.CSTNode], exact: Exact, context: Context) -> bool:
    """Whether something between writes in place: then a gradient may not be the one whose norm was taken."""
    source = context.source
    stop = source.start(site)

    around = {site, *source.ancestors(site)}
    read = {source.within(place, cst.SimpleStatementLine) for place in here}
    written: list[cst.CSTNode] = [*between(source, cst.AugAssign, begin, stop)]
    written += [one for one in between(source, cst.AssignTarget, begin, stop) if isinstance(one.target, cst.Subscript)]
    written += [one for one in between(source, cst.Call, begin, stop) if last_name(one.func).endswith("_")]
    names = {one.value for part in exact.opaque for one in between(source, cst.Name, *source.span(part))}
    calls: list[cst.CSTNode] = [*between(source, cst.Expr, begin, stop), *between(source, cst.Del, begin, stop)]
    if not {"jax", "tensorflow"} & context.resolver.modules:  # their arrays never change
        calls += [one for one in between(source, cst.Assign, begin, stop) if _is_own(one.value, context)]
    written += [one for one in calls if _may_write(one, names, source)]
    return any(source.function(one) in around and source.within(one, cst.SimpleStatementLine) not in read for one in written)


def _is_own(value: cst.BaseExpression, context: Context) -> bool:
    """Whether a value is what a function of the source returns, which may also write."""
    return isinstance(value, cst.Call) and not context.resolver.name(value.func)


def _may_write(node: cst.CSTNode, names: set[str], source: Source) -> bool:
    """Whether a statement may change what one of some names stands for: ``grads.pop()``, ``noise(grads)``, ``del grads[0]``."""
    call = node.value if isinstance(node, (cst.Expr, cst.Assign)) else node
    if not isinstance(call, (cst.Call, cst.Del)) or (isinstance(call, cst.Call) and last_name(call.func) == "print"):
        return False
    return any(one.value in names for one in between(source, cst.Name, *source.span(call)))


def _removed(site: cst.CSTNode, here: Sequence[cst.CSTNode], exact: Exact, context: Context) -> list[Edit]:
    """The edits that remove the lines whose names nothing reads any more."""
    source = context.source
    spans = [source.span(site)]
    by_name: dict[str, list[cst.CSTNode]] = {}
    for place in here:
        if (named := _name(place)) is not None:
            by_name.setdefault(named.value, []).append(place)
    edits: dict[tuple[int, int], Edit] = {}
    again = True
    while again:
        again = False
        for name, places in list(by_name.items()):
            units = _units(name, places, spans, exact, context)
            if units is None:
                continue
            del by_name[name]
            again = True
            for unit in units:
                start, end = source.line_start(source.start(unit)), source.next_line(source.end(unit))
                spans.append((start, end))
                edits[start, end] = Edit(start, end, "")
    return list(edits.values())


def _units(
    name: str, places: Sequence[cst.CSTNode], spans: Sequence[tuple[int, int]], exact: Exact, context: Context
) -> list[cst.CSTNode] | None:
    """The lines that bind a name, if nothing outside of some spans reads it."""
    source, resolver = context.source, context.resolver
    named = _name(places[0])
    bound = resolver.assigned_at(named) if named is not None else ()
    if len(bound) != len(places):
        return None
    units = {place: unit for place in bound if (unit := _unit(place, exact, source)) is not None}
    if len(units) < len(bound) or not set(bound) <= set(places):
        return None
    inside = [*spans, *((source.start(unit), source.end(unit)) for unit in units.values())]
    by_binding: Mapping[int, list[int]] = source.once((_units, name), lambda: _uses(name, context))
    if any(not any(one <= use < other for one, other in inside) for use in by_binding.get(id(bound), ())):
        return None
    return list(dict.fromkeys(units.values()))


def _uses(name: str, context: Context) -> Mapping[int, list[int]]:
    """Where the uses of a name start: a list for each list of bindings that they may have."""
    found: dict[int, list[int]] = defaultdict(list)
    for use in context.resolver.uses.get(name, ()):
        found[id(context.resolver.assigned_at(use))].append(context.source.start(use))
    return found


def _name(place: cst.CSTNode) -> cst.Name | None:
    return place.name if isinstance(place, cst.FunctionDef) else place if isinstance(place, cst.Name) else None


def _unit(place: cst.CSTNode, exact: Exact, source: Source) -> cst.CSTNode | None:
    """The lines of a binding that can go: ``n = ...``, or the loop of a total that does nothing else."""
    if isinstance(place, cst.FunctionDef):
        return place if isinstance(source.function(place), cst.FunctionDef) else None  # others may import it
    if isinstance(source.parents.get(place), cst.AugAssign):
        loop = source.within(place, cst.For)
        body: cst.CSTNode | None = loop
        while isinstance(body, (cst.For, cst.If)):
            body = body.body.body[0] if len(body.body.body) == 1 and body.orelse is None else None
        return loop if isinstance(body, cst.SimpleStatementLine) and len(body.body) == 1 else None
    return exact.reaching.statement(place)
