"""Calls of the table's functions: which function it is, whether it clips a gradient, and its mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import libcst as cst

from gradclip.natives import BY_NAME, KEYWORDS, Kind, Native
from gradclip.natives.targets import targets
from gradclip.source.bind import BindError, bind, keyword, literal
from gradclip.source.found import ApiCall, Context, Decision, Finding, manual, unchanged
from gradclip.source.resolve import Names
from gradclip.source.sites import own
from gradclip.source.traps import MISTAKES, steps
from gradclip.source.traps.limits import clips_nothing

__all__ = ["call", "look_alike", "mistakes", "only_measures"]

_OFF = frozenset({"GM003", "GM125"})  #: a keyword that does not clip


def call(node: cst.Call, context: Context) -> Iterator[Decision | ApiCall]:
    """A call of a function of the table with its arguments bound, or why it cannot be read."""
    names = context.resolver.names(node.func)
    known = sorted(names.qualified & BY_NAME.keys())
    found: list[Decision | ApiCall] = []
    if known:
        found.append(_function(node, known, names, context))
    elif names.single.startswith("gradclip.") and (ours := own.call(node, names.single, context)) is not None:
        yield ours
        return
    for name in sorted(names.qualified & KEYWORDS.keys())[:1] if not known else ():
        given = [one for api in KEYWORDS[name] if (one := _keyword(node, name, api, names, context)) is not None]
        on = [one for one in given if isinstance(one, ApiCall) or one.code not in _OFF]
        if len(on) > 1:
            what = f"`{context.source.code(node.func)}` takes one clip, but gets several."
            on = [manual(node, Finding("GM120", what, "Keep one of them: Keras 3 refuses several."), on[0].api)]
        found += on or given[:1]
    sources = context.options.sources
    yield from (one for one in found if one.api is None or not sources or one.api.framework in sources)


def mistakes(found: ApiCall) -> list[Decision]:
    """The mistakes of a call, or that it has none; nothing for a call that clips no gradient."""
    if look_alike(found):  # of an error or a loss, where its gradient is meant
        return [manual(found.call, one, found.api) for one in steps.findings(found) if one.code == "GM104"]
    findings = [finding for check in MISTAKES if (finding := check(found)) is not None]
    findings += [one for one in steps.findings(found) if one.code not in {other.code for other in findings}]
    if only_measures(found):  # also beside the clip of a trainer
        findings = [one for one in findings if one.code != "GM120"]
    if not findings:
        if only_measures(found):
            return [unchanged(found.call, "GM005", api=found.api)]
        acts = found.api.kind in (Kind.IN_PLACE, Kind.RETURNED)
        return [replace(unchanged(found.call, "GM001", api=found.api), is_followed=not (acts and steps.is_lost(found)))]
    made = [manual(found.call, finding, found.api) for finding in sorted(findings, key=lambda one: one.code)]
    return made[:1] if found.api.kind is Kind.KEYWORD else made


def _function(node: cst.Call, known: list[str], names: Names, context: Context) -> Decision | ApiCall:
    api = BY_NAME[known[0]]
    same = {(BY_NAME[name].signature, BY_NAME[name].dialect, BY_NAME[name].kind) for name in known}
    problem = _problem(node, names, len(same), known, context)
    if problem is not None:
        return manual(node, problem, api)
    try:
        arguments = bind(node, api.signature)
    except BindError as error:
        return manual(node, Finding("GM203" if error.starred else "GM204", str(error)), api)
    return ApiCall(context, node, api, known[0], arguments, targets(api).get("gradclip"), api.framework)


def _problem(call: cst.Call, names: Names, functions: int, known: list[str], context: Context) -> Finding | None:
    """Why a name does not resolve to exactly one function."""
    written = context.source.code(call.func)
    others = sorted(names.qualified - set(known))
    if BY_NAME[known[0]].code in {BY_NAME[name].code for name in context.replaced.values()}:
        return Finding(
            "GM201", f"`{written}` is replaced by another function in this source.", "Decide which of the two is meant."
        )
    if functions > 1 or others or names.local:
        meanings = [*known, *others, *(["something that this source defines"] if names.local else [])]
        return Finding("GM201", f"`{written}` can be {' or '.join(meanings)}.")
    if names.renamed and isinstance(call.func, cst.Name):
        return Finding("GM206", f"`{written}` is {known[0]} by an assignment.", f"Assign gradclip's function to `{written}`.")
    if isinstance(call.func, cst.Name) and names.bound_at:
        after = context.source.start(names.bound_at[-1].node)
        for star in context.resolver.stars:
            later = context.source.start(star) > after and context.source.function(star) is context.source.module
            if later and context.resolver.may_bind(star, call.func.value):
                return Finding("GM202", f"{context.source.shown(star)} may bind `{written}` anew.")
    return None


def _keyword(node: cst.Call, name: str, api: Native, names: Names, context: Context) -> Decision | ApiCall | None:
    """A keyword of a constructor; None if the call does not pass it."""
    arguments: Mapping[str, cst.Arg] = {key: one for one in node.args if (key := keyword(one)) == api.keyword}
    if not arguments and len(api.signature.parameters) > 3:
        try:
            arguments = bind(node, api.signature)
        except BindError:
            return None
    if api.keyword not in arguments:
        return None
    if not names.single:
        what = f"`{context.source.code(node.func)}` can be more than {name}."
        return manual(node, Finding("GM201", what), api)
    off = clips_nothing(api, arguments[api.keyword].value, context)
    if off is not None:
        return manual(node, off, api)
    value = literal(arguments[api.keyword].value)
    if value is None or (value == 0 and value is not False):
        return unchanged(node, "GM003", f"`{api.keyword}={value}` is off.", api)
    bound = {api.keyword: arguments[api.keyword]}
    return ApiCall(context, node, api, name, bound, targets(api).get("gradclip"), api.framework)


def only_measures(found: ApiCall) -> bool:
    """Whether a call only measures: a function that returns a norm, or a clip with an infinite limit."""
    if found.api.kind is Kind.MEASURE:
        return True
    limit = found.arguments.get("max_norm")
    return found.api.kind is Kind.IN_PLACE and limit is not None and literal(limit.value) == math.inf


def look_alike(found: ApiCall) -> str:
    """Why a functional clip does not clip a gradient; "" if it may clip one."""
    tensors, gradients = found.tensors, found.context.gradients
    is_returned = found.api.kind is Kind.RETURNED and not found.is_own
    if not is_returned or tensors is None or not found.api.dialect.startswith("tensorflow."):
        return ""
    shown = found.context.source.shown(tensors)
    if gradients.is_action(tensors) and not found.api.dialect.endswith("global_norm"):
        return f"{shown} is the gradient of an action, not of a parameter."
    if gradients.is_parameter(tensors) and not gradients.is_gradient(tensors):
        return f"{shown} is a parameter, not its gradient."
    if not gradients.is_gradient(tensors) and not gradients.is_taken(found.call):
        return f"Nothing shows that {shown} is a gradient."
    return ""
