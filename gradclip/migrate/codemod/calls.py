"""Calls of the table's functions: find the function, check the traps, and decide on the outcome."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import libcst as cst

from gradclip.code.bind import BindError, bind, literal
from gradclip.code.codes import CODES
from gradclip.code.elsewhere import crossing, lacks, no_native, no_rewrite
from gradclip.code.found import ApiCall, Context, Finding, family
from gradclip.code.model import Outcome
from gradclip.code.resolve import Names
from gradclip.code.source import Edit
from gradclip.code.traps import MISTAKES, OF_THE_NATIVE, TRAPS, keras, loops, shared, sparse
from gradclip.migrate.codemod import legacy, lifts
from gradclip.migrate.codemod.decision import Decision
from gradclip.migrate.codemod.rewrite import rewritten
from gradclip.natives import BY_NAME, KEYWORDS, Kind, Native
from gradclip.natives.targets import targets

__all__ = ["decide", "manual", "unchanged"]


def manual(node: cst.CSTNode, finding: Finding, api: Native | None = None) -> Decision:
    """A place for a person to migrate."""
    code = CODES[finding.code]
    return Decision(node, finding.code, Outcome.MANUAL, finding.reason or code.reason, finding.advice or code.advice, api)


def unchanged(node: cst.CSTNode, code: str, reason: str = "", api: Native | None = None) -> Decision:
    """A place that needs no change."""
    return Decision(node, code, Outcome.UNCHANGED, reason or CODES[code].reason, api=api)


def decide(call: cst.Call, context: Context) -> Iterator[Decision]:
    """Decide on a call whose name resolves to a function of the table."""
    names = context.resolver.names(call.func)
    known = sorted(names.qualified & BY_NAME.keys())
    if known:
        for made in _function(call, known, names, context):
            yield from _wanted(made, context)
        return
    for name in sorted(names.qualified & KEYWORDS.keys())[:1]:
        found = [decision for api in KEYWORDS[name] if (decision := _keyword(call, name, api, names, context)) is not None]
        on = [decision for decision in found if decision.code != "GM003"]
        if len(on) > 1:
            what = f"`{context.source.code(call.func)}` takes one clip, but gets several."
            on = [manual(call, Finding("GM120", what, "Keep one of them: Keras 3 refuses several."), on[0].api)]
        for decision in on or found[:1]:
            yield from _wanted(decision, context)


def _wanted(decision: Decision | None, context: Context) -> Iterator[Decision]:
    sources = context.options.sources
    if decision is None or (decision.api is not None and sources and decision.api.framework not in sources):
        return
    yield decision


def _function(call: cst.Call, known: list[str], names: Names, context: Context) -> Iterator[Decision]:
    api = BY_NAME[known[0]]
    same = {(BY_NAME[name].signature, BY_NAME[name].dialect, BY_NAME[name].kind) for name in known}
    problem = _problem(call, names, len(same), known, context)
    if problem is not None:
        yield manual(call, problem, api)
        return
    try:
        arguments = bind(call, api.signature)
    except BindError as error:
        yield manual(call, Finding("GM203" if error.starred else "GM204", str(error)), api)
        return
    found = ApiCall(context, call, api, known[0], arguments, targets(api).get("gradclip"))
    if not context.options.lint:
        yield _apply(found)
    elif not _look_alike(found):
        yield from _linted(found)


def _linted(found: ApiCall) -> list[Decision]:
    """The mistakes of a call; the linter also counts the calls without one."""
    findings = [finding for check in MISTAKES if (finding := check(found)) is not None]
    if not findings:
        return [unchanged(found.call, "GM005" if _only_measures(found) else "GM001", api=found.api)]
    return [manual(found.call, finding, found.api) for finding in sorted(findings, key=lambda one: one.code)]


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


def _keyword(call: cst.Call, name: str, api: Native, names: Names, context: Context) -> Decision | None:
    """Decide on a keyword of a constructor; None if the call does not pass it."""
    given = {a.keyword.value: a for a in call.args if a.keyword is not None}
    arguments: Mapping[str, cst.Arg] = {k: a for k, a in given.items() if k == api.keyword}
    if not arguments and len(api.signature.parameters) > 3:
        try:
            arguments = bind(call, api.signature)
        except BindError:
            return None
    if api.keyword not in arguments:
        return None
    if not names.single:
        what = f"`{context.source.code(call.func)}` can be more than {name}."
        return manual(call, Finding("GM201", what), api)
    value = literal(arguments[api.keyword].value)
    if value is None or (value == 0 and value is not False):
        return unchanged(call, "GM003", f"`{api.keyword}={value}` is off.", api)
    target = targets(api).get("gradclip")
    found = ApiCall(context, call, api, name, {api.keyword: arguments[api.keyword]}, target)
    return _linted(found)[0] if context.options.lint else _apply(found)


def _apply(found: ApiCall) -> Decision:
    """Decide on a call of one function with its arguments bound: a look-alike, a trap, a crossing, or a rewrite."""
    api, options = found.api, found.context.options
    alike = _look_alike(found)
    if alike:
        return unchanged(found.call, "GM112", alike, api)
    if options.to == "gradclip" and not options.norms and _only_measures(found):
        return unchanged(found.call, "GM005", api=api)
    native = options.to == family(api.framework)
    if native:
        target = targets(api).get(options.to)
        if target is None and api.status == "current":
            return unchanged(found.call, "GM001", api=api)
    else:
        target = found.target
    checks = OF_THE_NATIVE if native else (loops.check, crossing, *TRAPS) if found.crosses else TRAPS
    cannot = legacy.check(found)
    if cannot is not None and found.context.keeps(cannot.code):
        return manual(found.call, cannot, api)
    decision = lifts.lifted(found) if api.kind is Kind.GLOBAL_STATE else None
    if decision is not None:
        return decision
    findings = [finding for check in checks if (finding := check(found)) is not None and found.context.keeps(finding.code)]
    stopping = [finding for finding in findings if not (finding.changes and options.allow_semantic_change)]
    if stopping:
        return manual(found.call, stopping[0], api)
    if target is None or target.by_hand:
        return manual(found.call, no_rewrite(found), api)
    made = rewritten(found, target)
    if isinstance(made, Finding):
        return manual(found.call, made, api)
    without = lacks(found)
    if without and options.strict:
        return manual(found.call, no_native(found, without), api)
    return replace(_commented(made, findings, found), lacks=without)


def _commented(decision: Decision, findings: list[Finding], found: ApiCall) -> Decision:
    """A rewrite; if it changes training, it includes the comment and the assignment for this change."""
    reason = decision.reason or "gradclip's function means the same."
    taken = [text for assumed in (sparse.assumption, shared.assumption, keras.assumption) if (text := assumed(found))]
    decision = replace(decision, assumption="; ".join(taken))
    if not findings:
        return replace(decision, reason=reason)
    finding = findings[0]
    why = finding.reason or CODES[finding.code].reason
    start = found.context.source.start(found.call)
    prefix = (Edit(start, start, finding.prefix),) if finding.prefix else ()
    return replace(decision, reason=why, comment=f"{finding.code} {why}", edits=(*prefix, *decision.edits))


def _only_measures(found: ApiCall) -> bool:
    """Whether a call only measures: a function that returns a norm, or a clip with an infinite limit."""
    if found.api.kind is Kind.MEASURE:
        return True
    limit = found.arguments.get("max_norm")
    return found.api.kind is Kind.IN_PLACE and limit is not None and literal(limit.value) == math.inf


def _look_alike(found: ApiCall) -> str:
    """Why a functional clip does not clip a gradient; "" if it may clip one."""
    tensors, gradients = found.tensors, found.context.gradients
    if found.api.kind is not Kind.RETURNED or tensors is None or not found.api.dialect.startswith("tensorflow."):
        return ""
    shown = found.context.source.shown(tensors)
    if gradients.is_action(tensors) and not found.api.dialect.endswith("global_norm"):
        return f"{shown} is the gradient of an action, not of a parameter."
    if gradients.is_parameter(tensors) and not gradients.is_gradient(tensors):
        return f"{shown} is a parameter, not its gradient."
    if not gradients.is_gradient(tensors) and not gradients.is_taken(found.call):
        return f"Nothing shows that {shown} is a gradient."
    return ""
