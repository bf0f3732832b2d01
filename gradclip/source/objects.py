"""What made an object, and whose parameters an optimizer has: from the only assignment that a source shows."""

from __future__ import annotations

import libcst as cst

from gradclip.source.found import Context
from gradclip.source.source import receiver

__all__ = ["APPLIES", "applied", "first_of", "maker", "updates", "uses"]

APPLIES = frozenset({"apply_gradients", "apply"})  #: by which Keras's optimizers take gradients: `apply` since Keras 3


def maker(node: cst.BaseExpression | None, context: Context) -> cst.Call | None:
    """The call that made the object of a name, or of an attribute such as ``self.opt``; None if there may be several."""
    value = context.values.only(node) if isinstance(node, cst.Attribute) else context.values.value_of(node)
    made = node if isinstance(node, cst.Call) else value
    return made if isinstance(made, cst.Call) else None


def applied(call: cst.Call, context: Context) -> cst.Call | None:
    """The first call after a call, in its function, by which an optimizer takes gradients."""
    source = context.source
    found = (one for name in (*APPLIES, "step", "minimize") for one in source.calls.get(name, ()))
    after = (x for x in found if source.function(x) is source.function(call) and source.start(x) > source.end(call))
    return min(after, key=source.start, default=None)


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
