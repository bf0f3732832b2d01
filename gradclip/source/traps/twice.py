"""GM120: two clips of the same gradients for one step."""

from __future__ import annotations

import bisect
import math
import re

import libcst as cst

from gradclip.natives import BY_NAME, KEYWORDS, Kind
from gradclip.source.bind import keyword, literal, number
from gradclip.source.flow import APPLIES
from gradclip.source.found import IN_PLACE, ApiCall, Context, Finding
from gradclip.source.objects import first_of, maker, updates
from gradclip.source.source import Source, last_name, once, receiver
from gradclip.source.traps import trainers

__all__ = ["check"]

_WRAPPERS = re.compile(r"accelerator|fabric", re.IGNORECASE)
_CLIPS = IN_PLACE | {"clip_gradients"}
_NEAR = 4  #: so many clips before a clip are compared with it
_ADVICE = "Keep one of the two."
#: gradclip's own, which a migration may have put in the place of one of the two
_CLIPPED = re.compile(r"gradclip\.(backends\.\w+\.)?clipped")
_LINK = "gradclip.backends.jax.gradient_transformation"


def check(found: ApiCall) -> Finding | None:
    """A clip by hand beside the clip of an optimizer, of a chain, of a trainer, or beside the same clip."""
    if found.api.kind is Kind.OBJECT:
        return _before_a_chain(found)
    if found.api.kind is Kind.RETURNED:
        return _with_keyword(found)
    if found.api.kind is not Kind.IN_PLACE:
        return None
    trainer = trainers.that_clips(found)
    if trainer:
        return Finding("GM120", f"{trainer}, and this clip comes before it.", _ADVICE)
    step = next(found.context.flow.after(found.call, "step", "backward"), None)
    return (_in_optimizer(maker(step.of, found.context), found) if step is not None else None) or _again(found)


def _with_keyword(found: ApiCall) -> Finding | None:
    """``tf.clip_by_global_norm``, and ``apply_gradients`` of an optimizer with ``clipnorm=``."""
    context = found.context
    step = next(context.flow.after(found.call, "step"), None)
    for outer in context.source.ancestors(found.call):
        if isinstance(outer, cst.Call) and last_name(outer.func) in APPLIES:
            optimizer = receiver(outer)
            break
    else:
        optimizer = step.of if step is not None and last_name(step.call.func) in APPLIES else None
    made = _compiled(optimizer, context) or maker(optimizer, context) if optimizer is not None else None
    if made is None or (clipped := _in_optimizer(made, found)) is not None:
        return None if made is None else clipped
    apis = KEYWORDS.get(context.resolver.name(made.func), ())
    for argument in made.args:
        name = keyword(argument)
        if any(api.keyword == name for api in apis) and number(argument.value):
            reason = f"{context.source.shown(made)} clips by `{name}`, and this clip comes before it."
            return Finding("GM120", reason, _ADVICE)
    return None


def _in_optimizer(made: cst.Call | None, found: ApiCall) -> Finding | None:
    """``gradclip.clipped(optimizer, rule)``."""
    context = found.context
    if made is None or not _CLIPPED.fullmatch(context.resolver.name(made.func)):
        return None
    return Finding("GM120", f"{context.source.shown(made)} clips too, and this clip comes before it.", _ADVICE)


def _compiled(optimizer: cst.BaseExpression, context: Context) -> cst.Call | None:
    """The optimizer of the source's only ``compile(optimizer=...)``, for ``self.optimizer`` of a Keras model."""
    source = context.source
    if source.code(optimizer) != "self.optimizer":
        return None
    methods = (call for call in source.calls.get("compile", ()) if receiver(call) is not None)
    calls = [call for call in methods if not context.resolver.name(call.func).startswith(("re.", "torch."))]
    given = [a.value for c in calls for a in c.args if keyword(a) == "optimizer" or (not keyword(a) and a is c.args[0])]
    return maker(given[0], context) if len(given) == len(calls) == 1 else None


def _again(found: ApiCall) -> Finding | None:
    """The same parameters, clipped by the same kind of clip since the last backward."""
    source, flow, tensors = found.context.source, found.context.flow, found.tensors
    if tensors is None or not isinstance(source.parents[found.call], cst.Expr) or _measures(found.call):
        return None  # the program wants the norm
    if not flow.has(found.call, "backward"):
        return None
    last = next(flow.before(found.call, "backward", "step", "zero"), None)
    if last is None:
        return None
    clips = _clips(source)
    number = bisect.bisect_left(clips, source.start(found.call), key=source.start)
    for other in clips[max(0, number - _NEAR) : number]:
        if source.start(other) < last.start or not flow.meets(other, found.call) or not _is_inside(other, found):
            continue
        kind = last_name(other.func).rstrip("_") == last_name(found.call.func).rstrip("_")
        same = bool(other.args) and source.code(other.args[0].value) == source.code(tensors)
        if kind and same and not _measures(other) and _is_clip(other, found):
            reason = f"{source.shown(other)} has clipped the same gradients for the same step."
            return Finding("GM120", reason, _ADVICE)
    return None


@once
def _clips(source: Source) -> list[cst.Call]:
    """The calls with the name of a clip in place, in order."""
    return sorted((call for name in _CLIPS for call in source.calls.get(name, ())), key=source.start)


def _is_clip(call: cst.Call, found: ApiCall) -> bool:
    """Whether it calls a function of the table, or the method of a wrapper."""
    name = found.context.resolver.name(call.func)
    if name in BY_NAME or name.startswith("gradclip."):
        return True
    return _WRAPPERS.search(last_name(receiver(call))) is not None


def _is_inside(other: cst.Call, found: ApiCall) -> bool:
    """Whether the branches and loops around another call are also around this one: it has run before this one."""
    source = found.context.source
    kinds = (cst.If, cst.For, cst.While, cst.Try, cst.With)
    around = {*source.ancestors(found.call)}
    return all(outer in around for outer in source.ancestors(other) if isinstance(outer, kinds))


def _measures(call: cst.Call) -> bool:
    """Whether an infinite limit only measures."""
    return any(literal(argument.value) == math.inf for argument in call.args)


def _before_a_chain(found: ApiCall) -> Finding | None:
    """``grads, _ = clip.update(grads, state)``, and then ``tx.update(grads, ...)`` of a chain with a clip."""
    context = found.context
    clips = updates(found.call, context) if found.api.framework == "optax" else []
    for call in context.source.calls.get("update", ()) if clips else ():
        chain = maker(receiver(call), context) if call.args else None
        if chain is None or chain is found.call or first_of(call.args[0].value, context) not in clips:
            continue
        link = _clip_of(chain, context)
        if link is not None:
            reason = f"{context.source.shown(link)} in the chain clips the same gradients again."
            return Finding("GM120", reason, _ADVICE)
    return None


def _clip_of(chain: cst.Call, context: Context) -> cst.Call | None:
    """A clip among the links of a chain."""
    if last_name(chain.func) != "chain":
        return None
    for argument in chain.args:
        link = maker(argument.value, context)
        api = BY_NAME.get(context.resolver.name(link.func)) if link is not None else None
        own = link is not None and context.resolver.name(link.func) == _LINK
        if own or (api is not None and api.kind is Kind.OBJECT):
            return link
    return None
