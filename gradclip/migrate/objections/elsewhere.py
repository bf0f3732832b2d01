"""The line to write by hand if a call cannot be rewritten: the source's rule in the place where the other framework clips."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

from gradclip import dialects
from gradclip.core.errors import GradclipError
from gradclip.natives import Kind
from gradclip.natives.meaning import UNKNOWN, dialect_arguments, value_of
from gradclip.natives.model import NO_EFFECT
from gradclip.natives.nearest import Wanted, nearest
from gradclip.natives.targets import placeholders, targets
from gradclip.source.found import ApiCall, Finding, family

__all__ = ["crossing", "lacks", "no_native", "no_rewrite", "rule"]

_NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "paddle": "Paddle", "jax": "JAX"}
_PLACES = {
    "torch": "PyTorch clips before its optimizer's step",
    "tensorflow": "Keras clips in its optimizers",
    "paddle": "Paddle clips in grad_clip= of its optimizers",
    "jax": "optax clips in a link of a chain",
}


def rule(found: ApiCall) -> str:
    """``gradclip.dialects.torch.clip_grad_norm(1.0)``; "" if no dialect defines the meaning of the call."""
    if not found.api.dialect:
        return ""
    module, _, name = found.api.dialect.partition(".")
    parameters = list(inspect.signature(getattr(getattr(dialects, module), name)).parameters)
    given: dict[str, str] = {}
    for native, argument in found.arguments.items():
        parameter = found.api.called.get(native, native)
        if parameter in parameters and native not in NO_EFFECT:
            given[parameter] = found.context.source.one_line(argument.value)
    if found.api.kind is Kind.MEASURE:
        given.setdefault(parameters[0], 'float("inf")')
    first = [given.pop(parameters[0])] if parameters[0] in given and len(given) <= 1 + (len(parameters) > 2) else []
    arguments = ", ".join([*first, *(f"{parameter}={text}" for parameter, text in given.items())])
    return f"gradclip.dialects.{found.api.dialect}({arguments})"


def _filled(form: str, found: ApiCall) -> str:
    """A form of the table, filled with the arguments of the call."""

    def text(match: re.Match[str]) -> str:
        if match[1] == "rule":
            return rule(found)
        argument = found.arguments.get(match[1])
        if argument is not None:
            return found.context.source.one_line(argument.value)
        default = found.api.signature.parameters[match[1]].default
        return match[1] if default is inspect.Parameter.empty else repr(default)

    return re.sub(r"\{(\w+)\}", text, form)


def crossing(found: ApiCall) -> Finding | None:
    """Why a call cannot move to the other framework unchanged, with the line that replaces it; None if it can.

    A call that takes gradients as values can move anywhere: gradclip's function of the same name accepts the gradients of every
    framework. A call that takes parameters can move between torch and Paddle, whose parameters store their gradients.
    """
    to, made = found.context.options.to, rule(found)
    kind = found.api.kind
    if kind in (Kind.RETURNED, Kind.MEASURE) and found.target is not None and not found.target.by_hand:
        return None
    if not made:
        return Finding("GM303", advice=found.api.note)
    if kind is Kind.IN_PLACE:
        if to in ("torch", "paddle"):
            return None
        return Finding(
            "GM301", f"{_NAMES[to]} passes gradients as values; its parameters do not hold them.", _as_values(found, made)
        )
    if kind is Kind.RETURNED or kind is Kind.MEASURE:
        return Finding("GM303", advice=_by_hand(found) or found.api.note)
    line = f"optimizer = gradclip.clipped(optimizer, {made})"
    places = f"{_PLACES[family(found.api.framework)]}, {_PLACES[to]}."
    return Finding("GM302", places, f"Write: {line} (after `import gradclip`).")


def lacks(found: ApiCall) -> str:
    """The name of the framework of ``to`` if it has no native that clips alike; "" if it has one, or if ``to`` is gradclip."""
    to = found.context.options.to
    families = ("tensorflow", "keras") if to == "tensorflow" else (to,)
    if not found.crosses or any((m := nearest(_wanted(found), family)) is not None and m.is_equivalent for family in families):
        return ""
    return _NAMES[to]


def _wanted(found: ApiCall) -> Wanted:
    """The call, with a sample for each value that only the running program knows."""
    api, sample = found.api, placeholders(found.api)
    texts = {name: found.context.source.one_line(argument.value) for name, argument in found.arguments.items()}
    given = {k: text for k, text in dialect_arguments(api, texts).items() if k not in NO_EFFECT and k not in api.needed}
    known = {k: value for k, text in given.items() if (value := value_of(text)) is not UNKNOWN}
    *lower, upper = api.needed
    try:
        made = api.function(**{upper: 1.0, **dict.fromkeys(lower, -1.0), **known})
    except (GradclipError, TypeError, ValueError):
        return sample
    return replace(sample, rule=made, written={**sample.written, **given})


def no_native(found: ApiCall, name: str) -> Finding:
    """Why ``--strict`` leaves a call, with gradclip's line for it."""
    made = rule(found)
    advice = (
        f"Without --strict the call becomes gradclip's; its rule is {made}."
        if made
        else "Without --strict it becomes gradclip's."
    )
    return Finding("GM304", f"{name} has no function of this meaning.", advice)


def _as_values(found: ApiCall, made: str) -> str:
    known = found.arguments.get("total_norm")
    if known is not None:
        return f"Write: grads = gradclip.scale_by_norm(grads, {made}, {found.context.source.one_line(known.value)}).grads."
    line = f"grads = gradclip.clip(grads, {made}).grads"
    return f"Write: {line} (.norm instead of .grads is the norm)." if "norm" in found.api.dialect else f"Write: {line}."


def _by_hand(found: ApiCall) -> str:
    target = targets(found.api).get("gradclip")
    if target is None or not target.form or ("{rule}" in target.form and _lost(found)):
        return ""
    return " ".join(filter(None, (f"Write: {_filled(target.form, found)}.", target.note)))


def _lost(found: ApiCall) -> bool:
    """Whether a call has an argument with an effect that no rule has: ``optax.tree.norm(grads, squared=True)``."""
    _, *others = found.api.signature.parameters
    told = {name: name for name in others if name in found.arguments and name not in NO_EFFECT}
    return len(dialect_arguments(found.api, told)) < len(told)


def no_rewrite(found: ApiCall) -> Finding:
    """Why no rewrite exists within gradclip or within the framework."""
    return Finding("GM303", found.api.note, _by_hand(found) or ("Keep it." if found.api.status == "current" else ""))
