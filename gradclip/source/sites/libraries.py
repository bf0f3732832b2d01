"""The clips of other libraries, found by their qualified names: the codemod reports a replacement, and rewrites none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import libcst as cst

from gradclip.natives.libraries import OTHERS, ROWS, SHARDS, Library
from gradclip.source.bind import called, keyword, keywords, literal
from gradclip.source.found import Context, Decision, Finding, manual
from gradclip.source.resolve import module_of
from gradclip.source.source import last_name, words

__all__ = ["KEYS", "LAST_NAMES", "call"]

_MODES = {
    "norm": "gradclip.clip_grad_norm_({0}, {1})",
    "value": "gradclip.clip_grad_value_({0}, {1})",
}


def call(node: cst.Call, context: Context) -> Iterator[Decision]:
    """Report a call of another library's clip, or a ``partial`` of one, which has its arguments."""
    made = node
    node = called(node)
    names = context.resolver.names(node.func)
    name = names.single
    if names.unbound:  # a star import of a library that the table knows
        name = next((f"{module_of(star)}.{last_name(node.func)}" for star in reversed(context.resolver.stars)), "")
    known = next((known for pattern, known in _KNOWN.items() if pattern.fullmatch(name)), None)
    if isinstance(known, Library):
        given = (value for key, value in keywords(node).items() if key in words(known.keys))
        if not known.keys or any(literal(value) is not None for value in given):
            yield manual(made, Finding("GM505", f"{known.does}.", _filled(known.advice, node, context)))
    elif known is not None:
        yield manual(made, Finding("GM505", *known(node, context)))


def _timm(node: cst.Call, context: Context) -> tuple[str, str]:
    """The effect of timm's function for its mode, and the replacement."""
    does, given = "timm clips as the mode says: by one norm, by value or adaptively.", keywords(node)
    mode = literal(given["mode"]) if "mode" in given else "norm" if len(node.args) < 3 else literal(node.args[2].value)
    form = _MODES.get(mode) if isinstance(mode, str) else None
    if form is None:
        keep = "For the norm write gradclip.clip_grad_norm_, for values gradclip.clip_grad_value_; keep it for the mode agc."
        return does, keep
    return does, _filled(f"Write: {form}.", node, context)


def _composer(node: cst.Call, context: Context) -> tuple[str, str]:
    """The effect of Composer's algorithm or function for its type, and the replacement."""
    source = context.source
    given = keywords(node)
    is_function = last_name(node.func) == "apply_gradient_clipping"
    names = (*(["model"] if is_function else []), "clipping_type", "clipping_threshold", "fsdp_enabled")
    given.update(zip(names, (argument.value for argument in node.args if argument.keyword is None), strict=False))
    mode = literal(given["clipping_type"]) if "clipping_type" in given else ...
    if mode == "adaptive":
        does = "Composer clips each row of a gradient relative to the norm of its parameter's row: adaptive clipping."
        return does, ROWS
    limit = source.one_line(given["clipping_threshold"]) if "clipping_threshold" in given else "limit"
    function = {"norm": "clip_grad_norm", "value": "clip_grad_value"}.get(str(mode))
    if function is None or ("fsdp_enabled" in given and source.code(given["fsdp_enabled"]) != "False"):
        return "Composer clips as the type says; if FSDP shards the model, it uses FSDP's own clip.", SHARDS
    does = f"With the type '{mode}' Composer calls torch's {function}_; FSDP and DeepSpeed use their own clips."
    if is_function:
        model = source.one_line(given["model"]) if "model" in given else "model"
        parameters = model if model.endswith(")") else f"{model}.parameters()"
        return does, f"Write: gradclip.{function}_({parameters}, {limit})."
    line = f"optimizer = gradclip.clipped(optimizer, gradclip.dialects.torch.{function}({limit}))"
    return does, f"Keep it where the model is sharded, else write: {line}."


def _filled(advice: str, node: cst.Call, context: Context) -> str:
    """The advice, filled with the call's arguments by position, or by the usual names for them."""
    told = [one for one in node.args if keyword(one) in ("", "value", "max_norm", "parameters", "params")]
    given = [context.source.one_line(argument.value) for argument in told]
    return advice.format(*given[:2], *("parameters", "limit")[len(given[:2]) :])


#: functions whose effect depends on an argument
_BY_MODE: Mapping[str, Callable[[cst.Call, Context], tuple[str, str]]] = {
    r"composer(\.\w+)*\.(GradientClipping|apply_gradient_clipping)": _composer,
    r"timm\.utils\.(clip_grad\.)?dispatch_clip_grad": _timm,
}
_KNOWN = {re.compile(pattern): library for pattern, library in OTHERS.items()} | {
    re.compile(pattern): effect for pattern, effect in _BY_MODE.items()
}
#: the keywords that switch a clip of a library on, and say so
KEYS = frozenset(key for known in OTHERS.values() for key in words(known.keys) if "clip" in key)
LAST_NAMES = frozenset(
    name for known in _KNOWN for name in re.split(r"\W+", known.pattern[known.pattern.rindex(".") + 1 :]) if name
)
