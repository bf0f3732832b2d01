"""GM120: two clips of the same gradients for one step."""

from __future__ import annotations

import libcst as cst

from gradclip.natives import KEYWORDS, Kind
from gradclip.natives.own import is_clipped
from gradclip.source.bind import keyword, number
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.objects import APPLIES, maker
from gradclip.source.source import receiver
from gradclip.source.traps import trainers

__all__ = ["check"]

_ADVICE = "Keep one of the two."


def check(found: ApiCall) -> Finding | None:
    """A clip by hand beside the clip of a trainer, or of the optimizer that a Keras model is compiled with."""
    if found.api.kind is Kind.RETURNED:
        return _with_keyword(found)
    trainer = trainers.that_clips(found) if found.api.kind is Kind.IN_PLACE else ""
    return Finding("GM120", f"{trainer}, and this clip comes before it.", _ADVICE) if trainer else None


def _with_keyword(found: ApiCall) -> Finding | None:
    """``tf.clip_by_global_norm`` in ``train_step``, and ``model.compile(optimizer=Adam(clipnorm=1.0))``."""
    context = found.context
    calls = (call for name in APPLIES for call in context.source.calls.get(name, ()))
    here = (call for call in calls if context.source.function(call) is context.source.function(found.call))
    made = next((one for call in here if (one := _compiled(receiver(call), context)) is not None), None)
    if made is None:
        return None
    name = context.resolver.name(made.func)
    if is_clipped(name):
        return Finding("GM120", f"{context.source.shown(made)} clips too, and this clip comes before it.", _ADVICE)
    apis = KEYWORDS.get(name, ())
    for argument in made.args:
        name = keyword(argument)
        if any(api.keyword == name for api in apis) and number(argument.value):
            reason = f"{context.source.shown(made)} clips by `{name}`, and this clip comes before it."
            return Finding("GM120", reason, _ADVICE)
    return None


def _compiled(optimizer: cst.BaseExpression | None, context: Context) -> cst.Call | None:
    """The optimizer of the source's only ``compile(optimizer=...)``, for ``self.optimizer`` of a Keras model."""
    source = context.source
    if optimizer is None or source.code(optimizer) != "self.optimizer":
        return None
    methods = (call for call in source.calls.get("compile", ()) if receiver(call) is not None)
    calls = [call for call in methods if not context.resolver.name(call.func).startswith(("re.", "torch."))]
    given = [a.value for c in calls for a in c.args if keyword(a) == "optimizer" or (not keyword(a) and a is c.args[0])]
    return maker(given[0], context) if len(given) == len(calls) == 1 else None
