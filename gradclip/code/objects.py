"""What made an object, and whose parameters an optimizer has: from the only assignment that a source shows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

import libcst as cst

from gradclip.code.bind import keywords
from gradclip.code.found import Context
from gradclip.code.source import Source, last_name, once, receiver

__all__ = ["entered", "first_of", "maker", "owners", "updates", "uses"]

_OPTIMIZER = re.compile(r"(torch\.optim|paddle\.optimizer)\.(\w+\.)*[A-Z]\w*")
_LISTS = frozenset({"list", "tuple", "filter"})


def maker(node: cst.BaseExpression | None, context: Context) -> cst.Call | None:
    """The call that made the object of a name, or of an attribute such as ``self.opt``; None if there may be several."""
    if isinstance(node, cst.Call):
        return node
    if isinstance(node, cst.Name):
        value = context.values.value_of(node)
    elif isinstance(node, cst.Attribute):
        values = _attributes(context.source).get((_class(node, context.source), context.source.code(node)), ())
        value = values[0] if len(values) == 1 else None
    else:
        return None
    return value if isinstance(value, cst.Call) else None


def _class(node: cst.CSTNode, source: Source) -> cst.CSTNode:
    return source.within(node, cst.ClassDef) or source.module


@once
def _attributes(source: Source) -> Mapping[tuple[cst.CSTNode, str], list[cst.BaseExpression]]:
    """The values that assignments give to each attribute, by its class and its text; None switches off, and is left out."""
    found: dict[tuple[cst.CSTNode, str], list[cst.BaseExpression]] = defaultdict(list)
    for target in source.any(cst.AssignTarget):
        statement = source.parents[target]
        value = statement.value if isinstance(statement, cst.Assign) else None
        if isinstance(target.target, cst.Attribute) and value is not None and last_name(value) != "None":
            found[_class(target, source), source.code(target.target)].append(value)
    return found


def owners(call: cst.Call | None, context: Context) -> frozenset[str]:
    """``{"actor"}`` for ``torch.optim.Adam(actor.parameters())``; empty for all but an optimizer of one module."""
    if call is None or not _OPTIMIZER.fullmatch(context.resolver.name(call.func)):
        return frozenset()
    told = keywords(call)
    positional = [a.value for a in call.args if a.keyword is None and not a.star]
    params = told.get("params", told.get("parameters", positional[0] if positional else None))
    return frozenset() if params is None else _modules(params, context)


def _modules(params: cst.BaseExpression, context: Context) -> frozenset[str]:
    if isinstance(params, cst.Call) and last_name(params.func) in _LISTS and params.args:
        return _modules(params.args[-1].value, context)
    module = receiver(params, "parameters")
    return frozenset() if module is None else frozenset({context.source.code(module)})


def entered(node: cst.CSTNode, name: str, source: Source) -> cst.Call | None:
    """The innermost ``with name(...):`` around a node, in its function."""
    items = (item.item for outer in source.inside(node) if isinstance(outer, cst.With) for item in outer.items)
    return next((one for one in items if isinstance(one, cst.Call) and last_name(one.func) == name), None)


def uses(call: cst.Call, context: Context) -> list[cst.BaseExpression]:
    """The uses of the name that the result of a call gets."""
    name = context.source.target(call)
    named = context.resolver.uses.get(name.value, ()) if isinstance(name, cst.Name) else ()
    return [use for use in named if context.values.value_of(use) is call]


def updates(made: cst.Call, context: Context) -> list[cst.Call]:
    """The calls of ``clip.update(...)`` for the object that a call made, by its name or its attribute."""
    return [call for call in context.source.calls.get("update", ()) if maker(receiver(call), context) is made]


def first_of(node: cst.BaseExpression, context: Context) -> cst.Call | None:
    """The call whose result, or whose first result, a name has: ``updates, state = optimizer.update(...)``."""
    if not isinstance(node, cst.Name):
        return None
    place = context.values.last(node)
    given = context.resolver.given(place) if place is not None else None
    if given is None or given.each or given.part not in ((), (0,)):
        return None
    return given.value if isinstance(given.value, cst.Call) else None
