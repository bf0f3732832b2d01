"""What made an object, and whose parameters an optimizer has: from the only assignment that a source shows."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.source.bind import keywords
from gradclip.source.found import Context
from gradclip.source.source import Source, last_name, receiver

__all__ = ["entered", "first_of", "maker", "owners", "updates", "uses"]

_OPTIMIZER = re.compile(r"(torch\.optim|paddle\.optimizer)\.(\w+\.)*[A-Z]\w*")
_LISTS = frozenset({"list", "tuple", "filter"})


def maker(node: cst.BaseExpression | None, context: Context) -> cst.Call | None:
    """The call that made the object of a name, or of an attribute such as ``self.opt``; None if there may be several."""
    value = context.values.only(node) if isinstance(node, cst.Attribute) else context.values.value_of(node)
    made = node if isinstance(node, cst.Call) else value
    return made if isinstance(made, cst.Call) else None


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
