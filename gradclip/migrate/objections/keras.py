"""GM103: the meaning of Keras's ``clipnorm`` depends on the version."""

from __future__ import annotations

import libcst as cst

from gradclip.migrate.objections.elsewhere import rule
from gradclip.natives import Kind
from gradclip.source.bind import keywords, literal, number
from gradclip.source.found import ApiCall, Finding
from gradclip.source.source import Source, last_name

__all__ = ["assumption", "check"]

_OLD_KEYWORDS = frozenset({"lr", "decay", "schedule_decay"})  # keywords that Keras 3 rejects
_OLD_NAMES = frozenset({"fit_generator", "Convolution2D", "np_utils", "MaxoutDense", "nb_epoch"})
_MODULES = ("keras.optimizers.", "tensorflow.keras.optimizers.")


def check(found: ApiCall) -> Finding | None:
    """A Keras version that gradclip cannot wrap or in which the keyword means something else; a limit that may be off."""
    if found.api.framework != "keras" or found.api.kind is not Kind.KEYWORD:
        return None
    keyword = found.api.keyword
    if by_hand := _set_later(found.context.source, keyword) or found.context.options.about.limits.get(keyword, ""):
        reason = f"{by_hand} sets it too, and an optimizer that clipped() wraps has no {keyword}."
        return Finding("GM504", reason, "Change both: set the limit in one place, in the rule of gradclip.clipped.")
    module = next((module for module in _MODULES if found.name.startswith(module)), None)
    given = {*keywords(found.call)}
    old = _old(found, given)
    if old and keyword == "clipnorm":
        reason = f"{old}: on Keras 2.3.1 and before, clipnorm was one norm over all gradients."
        return Finding("GM103", reason)
    if old or module is None or "." in found.name.removeprefix(module):
        reason = old or "gradclip.backends.keras.clipped wraps the optimizers of Keras 3, and this is not one of them"
        return Finding("GM103", f"{reason}.", f"Upgrade to Keras 3 first, then write: {_line(found)}.")
    if last_name(found.call.func) == "LossScaleOptimizer":
        return Finding("GM303", "A LossScaleOptimizer passes its gradients on.", "Clip in the optimizer inside it.")
    value = found.limits[keyword]
    if number(value) is None and literal(value) is ...:
        what = f"`{found.context.source.code(value)}` may be None or 0, which switch the clip off in Keras."
        return Finding("GM114", what, f"Where it is a number above 0, write: {_line(found)}.")
    return None


def _set_later(source: Source, keyword: str) -> str:
    """The assignment that gives an optimizer the keyword by hand; "" if there is none."""
    targets = (one.target for one in source.all(cst.AssignTarget))
    set_there = (one for one in targets if isinstance(one, cst.Attribute) and one.attr.value == keyword)
    return next((f"`{source.code(one)}`" for one in set_there if last_name(one.value) != "self"), "")


def assumption(found: ApiCall) -> str:
    """The assumption that a rewrite of a keyword makes."""
    if found.api.framework != "keras" or found.api.kind is not Kind.KEYWORD:
        return ""
    return "an optimizer of Keras 3, which clipped() wraps"


def _old(found: ApiCall, given: set[str]) -> str:
    """The evidence that the source was written for Keras before version 3."""
    old = sorted(given & _OLD_KEYWORDS)
    if old:
        return f"Keras 3 has no argument {old[0]}"
    old = sorted(_OLD_NAMES & found.context.source.named.keys())
    return f"Keras 3 has no {old[0]}" if old else ""


def _line(found: ApiCall) -> str:
    return f"gradclip.backends.keras.clipped({last_name(found.call.func)}(...), {rule(found)})"
