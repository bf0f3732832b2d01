"""GM105, GM106 and GM113: wrong uses of a clip's result."""

from __future__ import annotations

import math
import re

import libcst as cst

from gradclip.natives import Kind
from gradclip.rounds.rules import OWN_NORM
from gradclip.source.bind import literal
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.objects import uses
from gradclip.source.source import last_name, receiver
from gradclip.source.traps import steps

__all__ = ["check_copy", "check_ignored", "check_norm", "dropped", "lost_in_loop"]

_AFTER = re.compile(r"(^|_)(clipped|after|post|new)(_|$)")
_REFUSES = re.compile(r"^(assert)?_?[rR]aises")
_COPIES = frozenset({"clone", "detach", "copy", "deepcopy", "numpy", "cpu", "tolist"})


def check_ignored(found: ApiCall) -> Finding | None:
    """GM105: no code uses the result of a functional clip, or code uses a norm as the gradients."""
    source = found.context.source
    holder = source.parents[found.call]
    target = found.context.source.target(found.call)
    if found.api.kind is Kind.IN_PLACE and isinstance(target, cst.Name) and not found.is_by_rule:
        if found.context.gradients.is_named(target.value) and _is_for_gradients(found):
            reason = f"It clips in place and returns no gradients, but `{target.value}` is named as if it did."
            return Finding("GM105", reason, "Ignore the result: the call has clipped the gradients of the parameters.")
        return None
    if found.api.kind not in (Kind.RETURNED, Kind.OBJECT) or (found.is_by_rule and found.api.writes):
        return None
    if not isinstance(holder, cst.Expr) and not (isinstance(target, cst.Name) and target.value == "_"):
        return None
    if any(_REFUSES.search(last_name(item)) for item in _entered(found)):
        return None  # a test of an error
    if found.api.kind is Kind.OBJECT:
        return Finding("GM105", "It makes an object that nothing uses: nothing is clipped.", "Pass it to the optimizer.")
    tensors = found.tensors
    prefix = ""
    is_given = isinstance(holder, cst.Expr) and not found.is_by_rule
    if isinstance(tensors, cst.Name) and is_given and source.loop(found.call, tensors.value) is None:
        prefix = f"{tensors.value}, _ = " if found.api.returns_pair else f"{tensors.value} = "
    advice = f"Write: {prefix}{source.one_line(found.call)}; or remove the call." if prefix else ""
    return Finding("GM105", advice=advice, changes=bool(prefix), prefix=prefix)


def _entered(found: ApiCall) -> list[cst.BaseExpression]:
    """The functions of the ``with`` around a call: ``pytest.raises`` of ``with pytest.raises(ValueError):``."""
    around = found.context.source.within(found.call, cst.With)
    items = [item.item for item in around.items] if around is not None else []
    return [item.func for item in items if isinstance(item, cst.Call)]


def _is_for_gradients(found: ApiCall) -> bool:
    """Whether code takes a norm for gradients: it pairs, loops over or assigns them; a norm that is logged is no mistake."""
    source = found.context.source
    for use in uses(found.call, found.context):
        outer = source.parents[use]
        call = source.parents[outer] if isinstance(outer, cst.Arg) else None
        if isinstance(call, cst.Call) and last_name(call.func) in ("zip", "apply_gradients", "enumerate"):
            return True
        if isinstance(outer, (cst.For, cst.CompFor)) or (isinstance(outer, cst.Subscript) and outer.value is use):
            return True
        if isinstance(outer, cst.Assign) and any(last_name(target.target) == "grad" for target in outer.targets):
            return True
    return False


def dropped(node: cst.CSTNode, context: Context) -> bool:
    """Whether no code takes a value: a statement, in a function or a loop, that is the expression or a map of it."""
    source = context.source
    while not isinstance(outer := source.parents[node], cst.Expr):
        maps = context.values.takers(outer) if isinstance(outer, cst.Lambda) else ()
        taken = next((call for call in maps if "map" in last_name(call.func)), None)
        if taken is None and not isinstance(outer, (cst.ListComp, cst.GeneratorExp)):
            return False
        node = outer if taken is None else taken
    return any(isinstance(one, (cst.FunctionDef, cst.For, cst.While)) for one in source.ancestors(node))  # a cell shows others


def check_norm(found: ApiCall) -> Finding | None:
    """GM106: a name says that the norm before the clip is the norm after it; ``use_norm`` is the norm of other tensors."""
    target = found.context.source.target(found.call)
    if isinstance(target, cst.Tuple) and len(target.elements) == 2:
        target = target.elements[1].value
    elif found.api.kind is not Kind.IN_PLACE or found.is_by_rule:
        target = None
    measures = any(literal(limit) == math.inf for limit in found.limits.values())  # it may follow the clip
    if isinstance(target, cst.Name) and "norm" in target.value and _AFTER.search(target.value) and not measures:
        limit = next(iter(found.limits.values()), None)
        shown = "limit" if limit is None else found.context.source.code(limit)
        advice = f"For the norm after it, take min({target.value}, {shown}); or rename it."
        return Finding("GM106", f"The returned norm is the norm before clipping, but it is called `{target.value}`.", advice)
    known = found.arguments.get("use_norm")
    measured = found.context.values.value_of(known.value) if known is not None else None
    if known is not None and isinstance(measured, cst.Call) and last_name(measured.func) == "global_norm" and measured.args:
        of, tensors = measured.args[0].value, found.tensors
        if tensors is not None and not _is_part(tensors, of, found.context):
            code = found.context.source.code
            reason = f"`{code(known.value)}` is the norm of `{code(of)}`, but the call clips `{code(tensors)}`."
            return Finding("GM106", reason, OWN_NORM)
    return None


def _is_part(tensors: cst.BaseExpression, whole: cst.BaseExpression, context: Context) -> bool:
    """Whether gradients may be some of a list: several lists that have one norm in common are clipped alike by it."""
    code, value = context.source.code, context.values.value_of(whole)
    listed = code(whole) if value is None else f"{code(whole)} {code(value)}"
    is_built = isinstance(value, cst.List) and not value.elements
    return is_built or re.search(rf"(?<![\w.]){re.escape(code(tensors))}(?![\w.])", listed) is not None


def check_copy(found: ApiCall) -> Finding | None:
    """GM113: the optimizer does not use the clipped tensor."""
    context, tensors = found.context, found.tensors
    if tensors is None:
        return None
    if found.api.kind is Kind.IN_PLACE:
        return _in_place(found, tensors)
    lost = lost_in_loop(found.call, tensors, context) if found.api.kind is Kind.RETURNED else ""
    return Finding("GM113", lost) if lost else None


def lost_in_loop(call: cst.Call, tensors: cst.BaseExpression, context: Context) -> str:
    """Why ``for g in grads: g = clip(g)`` clips nothing; "" if code takes the value, or it is something else."""
    source, name = context.source, last_name(tensors)
    target, loop = source.target(call), source.loop(call, name)
    if loop is None or not isinstance(target, cst.Name) or not isinstance(tensors, cst.Name) or target.value != name:
        return ""
    end = source.end(call)
    if any(source.start(use) >= end and loop in source.ancestors(use) for use in context.resolver.uses.get(name, ())):
        return ""
    return f"`{name}` is the variable of the loop: a value assigned to it is lost after the pass."


def _in_place(found: ApiCall, tensors: cst.BaseExpression) -> Finding | None:
    element = tensors.elt if isinstance(tensors, (cst.ListComp, cst.GeneratorExp)) else tensors
    is_lost = not found.is_by_rule or isinstance(found.context.source.parents[found.call], cst.Expr)
    if receiver(element, *_COPIES) is not None and is_lost:
        return Finding("GM113", f"{found.context.source.shown(tensors)} is a copy, which is clipped in place and dropped.")
    return next((one for one in steps.findings(found) if one.code == "GM113"), None)  # given gradients, it clips nothing
