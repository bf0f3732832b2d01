"""The clips of other libraries, found by their qualified names: the codemod reports a replacement, and rewrites none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from gradclip.code.bind import keyword, keywords, literal
from gradclip.code.found import Context, Decision, Finding, manual
from gradclip.code.resolve import module_of
from gradclip.code.source import last_name, words
from gradclip.natives import BY_CODE

__all__ = ["LAST_NAMES", "call"]

_NORM = "gradclip.clip_grad_norm_({0}, {1})"


@dataclass(frozen=True, slots=True)
class _Library:
    """The behaviour of one function or class."""

    does: str
    advice: str  #: ``{0}`` and ``{1}`` stand for the gradients and the limit
    keys: str = ""  #: of a class, the keywords that clip


_ROWS = f"Keep it: gradclip.dialects.{BY_CODE['GO504'].dialect} has optax's units, which are columns."
_TRAINER = "Keep it: the trainer knows when the gradients are ready."
_SHARDS = "Keep it: it knows how the gradients are split."
_SLOT = "Keep it, or clip with gradclip where the gradients are ready."
#: a pattern of qualified names -> their meaning; the last part is one name or several
_LIBRARIES: Mapping[str, _Library] = {
    r"timm\.utils\.(agc\.)?adaptive_clip_grad": _Library(
        "timm clips each row of a gradient relative to the norm of its parameter's row: adaptive clipping",
        _ROWS,
    ),
    r"pytorch_optimizer(\.\w+)*\.agc": _Library(
        "pytorch-optimizer scales each row of a gradient relative to the norm of its parameter's row: adaptive clipping", _ROWS
    ),
    r"apex\.contrib\.clip_grad\.(clip_grad\.)?clip_grad_norm_": _Library(
        "apex's function takes torch's arguments and clips by one norm over all gradients", f"Write: {_NORM}."
    ),
    r"fairseq\.utils\.clip_grad_norm_": _Library(
        "fairseq clips by one norm over all gradients, and only measures where the limit is 0",
        f"Write: {_NORM}; call it only where the limit is above 0.",
    ),
    r"detectron2\.solver\.(build\.)?maybe_add_gradient_clipping": _Library(
        "detectron2 makes an optimizer that clips each parameter's gradient before its step, as SOLVER.CLIP_GRADIENTS says",
        "Keep it, or write: optimizer = gradclip.clipped(optimizer, rule).",
    ),
    r"paddle\.(fluid|nn)\.clip\.append_gradient_clip_ops": _Library(
        "It applies the clips that set_gradient_clip has set for the parameters",
        "Remove it, and pass the clip to grad_clip= of the optimizer.",
    ),
    r"mlx\.optimizers\.(optimizers\.)?clip_grad_norm": _Library(
        "MLX clips by one norm over all gradients, and returns them with the norm",
        "Write: gradclip.clip({0}, gradclip.dialects.torch.clip_grad_norm({1})).",
    ),
    r"torchopt\.(clip\.)?clip_grad_norm": _Library("torchopt makes a transformation that clips by one norm", _SLOT),
    r"fastai(\.\w+)*\.GradientClip": _Library("fastai clips by one norm in a callback", _SLOT),
    r"skorch(\.\w+)*\.GradientNormClipping": _Library("skorch clips by one norm in a callback", _SLOT),
    r"chainer\.(optimizer|optimizer_hooks)(\.\w+)*\.(GradientClipping|GradientHardClipping)": _Library(
        "Chainer clips in a hook of the optimizer", _SLOT
    ),
    r"mxnet\.gluon\.utils\.clip_global_norm": _Library("MXNet clips by one norm over all arrays, in place", _SLOT),
    r"tensorpack(\.\w+)*\.GlobalNormClip": _Library("tensorpack clips by one norm over all gradients", _SLOT),
    r"levanter\.optim(\.\w+)*\.(ClipUpdateNormConfig|clip_update_norm)": _Library(
        "Levanter clips the optimizer's updates, relative to the norms of past steps",
        "Keep it: gradclip clips gradients, before the optimizer.",
    ),
    r"megatron\.core\.optimizer(\.\w+)*\.(clip_grad_norm_fp32|clip_grad_by_total_norm_fp32)": _Library(
        "Megatron clips by one norm over the shards of all processes", _SHARDS
    ),
    r"torchtitan\.distributed\.utils\.clip_grad_norm_": _Library(
        "torchtitan clips by one norm over the meshes and the stages of a pipeline",
        f"Keep it, or write: {_NORM}; a pipeline needs reduce= too.",
    ),
    r"allennlp\.training(\.\w+)*\.GradientDescentTrainer": _Library(
        "AllenNLP's trainer clips, by one norm (grad_norm) or by value (grad_clipping)", _TRAINER, "grad_norm grad_clipping"
    ),
    r"colossalai\.booster\.plugin(\.\w+)*\.(GeminiPlugin|HybridParallelPlugin|LowLevelZeroPlugin)": _Library(
        "Colossal-AI's optimizer clips by one norm over the shards of all processes", _SHARDS, "max_norm"
    ),
    r"composer(\.trainer)*\.Trainer": _Library("Composer's trainer clips by one norm", _TRAINER, "grad_clip_norm"),
    r"megatron\.core\.optimizer(\.\w+)*\.OptimizerConfig": _Library(
        "Megatron's optimizer clips by one norm over the shards of all processes", _SHARDS, "clip_grad"
    ),
    r"pytorch_optimizer(\.\w+)*\.(LOMO|AdaLOMO)": _Library(
        "The optimizer clips during the backward pass, and never has all gradients at once",
        "Keep it.",
        "clip_grad_norm clip_grad_value",
    ),
}
_MODES = {
    "norm": "gradclip.clip_grad_norm_({0}, {1})",
    "value": "gradclip.clip_grad_value_({0}, {1})",
}


def call(node: cst.Call, context: Context) -> Iterator[Decision]:
    """Report a call of another library's clip."""
    names = context.resolver.names(node.func)
    name = names.single
    if names.unbound:  # a star import of a library that the table knows
        name = next((f"{module_of(star)}.{last_name(node.func)}" for star in reversed(context.resolver.stars)), "")
    known = next((known for pattern, known in _KNOWN.items() if pattern.fullmatch(name)), None)
    if isinstance(known, _Library):
        given = (value for key, value in keywords(node).items() if key in words(known.keys))
        if not known.keys or any(literal(value) is not None for value in given):
            yield manual(node, Finding("GM505", f"{known.does}.", _filled(known.advice, node, context)))
    elif known is not None:
        yield manual(node, Finding("GM505", *known(node, context)))


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
        return does, _ROWS
    limit = source.one_line(given["clipping_threshold"]) if "clipping_threshold" in given else "limit"
    function = {"norm": "clip_grad_norm", "value": "clip_grad_value"}.get(str(mode))
    if function is None or ("fsdp_enabled" in given and source.code(given["fsdp_enabled"]) != "False"):
        return "Composer clips as the type says; if FSDP shards the model, it uses FSDP's own clip.", _SHARDS
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
_KNOWN = {re.compile(pattern): library for pattern, library in _LIBRARIES.items()} | {
    re.compile(pattern): effect for pattern, effect in _BY_MODE.items()
}
LAST_NAMES = frozenset(
    name for known in _KNOWN for name in re.split(r"\W+", known.pattern[known.pattern.rindex(".") + 1 :]) if name
)
