"""GM105, GM106 and GM113: wrong uses of a clip's result."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.code.found import ApiCall, Finding
from gradclip.code.objects import uses
from gradclip.code.source import last_name, target_names
from gradclip.natives import Kind

__all__ = ["check_copy", "check_ignored", "check_norm"]

_AFTER = re.compile(r"(^|_)(clipped|after|post|new)(_|$)")
_COPIES = frozenset({"clone", "detach", "copy", "deepcopy", "numpy", "cpu", "tolist"})


def check_ignored(found: ApiCall) -> Finding | None:
    """GM105: no code uses the result of a functional clip, or code uses a norm as the gradients."""
    source = found.context.source
    holder = source.parents[found.call]
    target = _target(found)
    if found.api.kind is Kind.IN_PLACE and isinstance(target, cst.Name):
        if found.context.gradients.is_named(target.value) and _is_for_gradients(found):
            reason = f"It clips in place and returns no gradients, but `{target.value}` is named as if it did."
            return Finding("GM105", reason, "Ignore the result: the call has clipped the gradients of the parameters.")
        return None
    if found.api.kind not in (Kind.RETURNED, Kind.OBJECT):
        return None
    if not isinstance(holder, cst.Expr) and not (isinstance(target, cst.Name) and target.value == "_"):
        return None
    if found.api.kind is Kind.OBJECT:
        return Finding("GM105", "It makes an object that nothing uses: nothing is clipped.", "Pass it to the optimizer.")
    tensors = found.tensors
    prefix = ""
    if isinstance(tensors, cst.Name) and isinstance(holder, cst.Expr) and not _is_target_of_loop(tensors, found):
        prefix = f"{tensors.value}, _ = " if found.api.returns_pair else f"{tensors.value} = "
    advice = f"Write: {prefix}{source.one_line(found.call)}; or remove the call." if prefix else ""
    return Finding("GM105", advice=advice, changes=bool(prefix), prefix=prefix)


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


def check_norm(found: ApiCall) -> Finding | None:
    """GM106: a name says that the norm before the clip is the norm after it; ``use_norm`` is the norm of other tensors."""
    target = _target(found)
    if isinstance(target, cst.Tuple) and len(target.elements) == 2:
        target = target.elements[1].value
    elif found.api.kind is not Kind.IN_PLACE:
        target = None
    if isinstance(target, cst.Name) and "norm" in target.value and _AFTER.search(target.value):
        limit = next(iter(found.limits.values()), None)
        shown = "limit" if limit is None else found.context.source.code(limit)
        advice = f"For the norm after it, take min({target.value}, {shown}); or rename it."
        return Finding("GM106", f"The returned norm is the norm before clipping, but it is called `{target.value}`.", advice)
    known = found.arguments.get("use_norm")
    measured = found.context.reaching.value_of(known.value) if known is not None else None
    if known is not None and isinstance(measured, cst.Call) and last_name(measured.func) == "global_norm" and measured.args:
        code = found.context.source.code
        of, tensors = code(measured.args[0].value), found.tensors
        if tensors is not None and of != code(tensors):
            return Finding("GM106", f"`{code(known.value)}` is the norm of `{of}`, but the call clips `{code(tensors)}`.")
    return None


def check_copy(found: ApiCall) -> Finding | None:
    """GM113: the optimizer does not use the clipped tensor."""
    context, tensors = found.context, found.tensors
    if tensors is None:
        return None
    if found.api.kind is Kind.IN_PLACE:
        return _in_place(found, tensors)
    target = _target(found)
    same = isinstance(target, cst.Name) and isinstance(tensors, cst.Name) and target.value == tensors.value
    if found.api.kind is Kind.RETURNED and same and isinstance(tensors, cst.Name) and _is_target_of_loop(tensors, found):
        loop = context.source.within(found.call, cst.For)
        end, name = context.source.end(found.call), tensors.value
        uses = context.resolver.uses.get(name, ())
        if loop is not None and not any(context.source.start(u) >= end and loop in context.source.ancestors(u) for u in uses):
            return Finding("GM113", f"`{name}` is the variable of the loop: a value assigned to it is lost after the pass.")
    return None


def _in_place(found: ApiCall, tensors: cst.BaseExpression) -> Finding | None:
    element = tensors.elt if isinstance(tensors, (cst.ListComp, cst.GeneratorExp)) else tensors
    copied = isinstance(element, cst.Call) and isinstance(element.func, cst.Attribute) and last_name(element.func) in _COPIES
    if copied:
        return Finding("GM113", f"{found.context.source.shown(tensors)} is a copy, which is clipped in place and dropped.")
    if "param" not in last_name(tensors) and found.context.gradients.is_gradient(tensors):
        reason = "It clips the gradients of the parameters that it gets: given gradients, it clips nothing."
        return Finding("GM113", reason, "Pass the parameters.")
    return None


def _target(found: ApiCall) -> cst.BaseExpression | None:
    """The target of the assignment of the result."""
    holder = found.context.source.parents[found.call]
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        return holder.targets[0].target
    return holder.target if isinstance(holder, (cst.AnnAssign, cst.NamedExpr)) else None


def _is_target_of_loop(name: cst.Name, found: ApiCall) -> bool:
    loops = (outer for outer in found.context.source.ancestors(found.call) if isinstance(outer, cst.For))
    return any(name.value in target_names(loop.target) for loop in loops)
