"""The clips of other libraries, known by their qualified names: shown with what to write, and never rewritten."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from gradclip.migrate.codemod.bind import literal
from gradclip.migrate.codemod.calls import manual
from gradclip.migrate.codemod.found import Context, Decision, Finding

__all__ = ["LAST_NAMES", "call"]

_NORM = "gradclip.clip_grad_norm_({0}, {1})"


@dataclass(frozen=True, slots=True)
class _Library:
    """What one function or class does."""

    does: str
    advice: str  #: with ``{0}``, ``{1}`` for the gradients and the limit


_SLOT = "Keep it, or clip with gradclip where the gradients are ready."
#: a pattern of qualified names -> what is meant by them; the last part is a plain name, or several
_LIBRARIES: Mapping[str, _Library] = {
    r"timm\.utils\.(agc\.)?adaptive_clip_grad": _Library(
        "timm clips each row of a gradient relative to the norm of its parameter's row: adaptive clipping",
        "Keep it: gradclip.dialects.optax.adaptive_grad_clip has optax's units, which are columns.",
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
        "Keep it, or give the optimizer gradclip.backends.torch.step_pre_hook(rule) in its place.",
    ),
    r"paddle\.(fluid|nn)\.clip\.append_gradient_clip_ops": _Library(
        "It applies the clips that set_gradient_clip has set for the parameters",
        "Remove it, and hand the clip to grad_clip= of the optimizer.",
    ),
    r"mlx\.optimizers\.(optimizers\.)?clip_grad_norm": _Library(
        "MLX clips by one norm over all gradients, and returns them with the norm",
        "Write: gradclip.clip({0}, gradclip.dialects.torch.clip_grad_norm({1})).",
    ),
    r"torchopt\.(clip\.)?clip_grad_norm": _Library("torchopt makes a transformation that clips by one norm", _SLOT),
    r"composer\.algorithms(\.\w+)*\.(GradientClipping|apply_gradient_clipping)": _Library(
        "Composer clips in its trainer", _SLOT
    ),
    r"fastai(\.\w+)*\.GradientClip": _Library("fastai clips by one norm in a callback", _SLOT),
    r"skorch(\.\w+)*\.GradientNormClipping": _Library("skorch clips by one norm in a callback", _SLOT),
    r"chainer\.(optimizer|optimizer_hooks)(\.\w+)*\.(GradientClipping|GradientHardClipping)": _Library(
        "Chainer clips in a hook of the optimizer", _SLOT
    ),
    r"mxnet\.gluon\.utils\.clip_global_norm": _Library("MXNet clips by one norm over all arrays, in place", _SLOT),
    r"tensorpack(\.\w+)*\.GlobalNormClip": _Library("tensorpack clips by one norm over all gradients", _SLOT),
    r"levanter\.optim(\.\w+)*\.(ClipUpdateNormConfig|clip_update_norm)": _Library(
        "Levanter clips what the optimizer makes of the gradients, relative to the norms of past steps",
        "Keep it: gradclip clips gradients, before the optimizer.",
    ),
    r"megatron\.core\.optimizer(\.\w+)*\.(clip_grad_norm_fp32|clip_grad_by_total_norm_fp32)": _Library(
        "Megatron clips by one norm over the shards of all processes", "Keep it: it knows how the gradients are split."
    ),
    r"torchtitan\.distributed\.utils\.clip_grad_norm_": _Library(
        "torchtitan clips by one norm over the meshes and the stages of a pipeline",
        f"Keep it, or write: {_NORM}; docs/distributed.md says where a pipeline needs reduce=.",
    ),
}
_DISPATCH = re.compile(r"timm\.utils\.(clip_grad\.)?dispatch_clip_grad")
_MODES = {
    "norm": "gradclip.clip_grad_norm_({0}, {1})",
    "value": "gradclip.clip_grad_value_({0}, {1})",
}
_KNOWN = {re.compile(pattern): library for pattern, library in _LIBRARIES.items()}
LAST_NAMES = frozenset(
    name
    for pattern in (*_LIBRARIES, _DISPATCH.pattern)
    for name in re.split(r"\W+", pattern[pattern.rindex(".") + 1 :])
    if name
)


def call(node: cst.Call, context: Context) -> Iterator[Decision]:
    """A call of another library's clip."""
    name = context.resolver.name(node.func)
    if _DISPATCH.fullmatch(name):
        yield manual(
            node, Finding("GM505", "timm clips as the mode says: by one norm, by value or adaptively.", _mode(node, context))
        )
        return
    library = next((library for pattern, library in _KNOWN.items() if pattern.fullmatch(name)), None)
    if library is not None:
        yield manual(node, Finding("GM505", f"{library.does}.", _filled(library.advice, node, context)))


def _mode(node: cst.Call, context: Context) -> str:
    given = {argument.keyword.value: argument.value for argument in node.args if argument.keyword is not None}
    mode = literal(given["mode"]) if "mode" in given else "norm" if len(node.args) < 3 else literal(node.args[2].value)
    form = _MODES.get(mode) if isinstance(mode, str) else None
    if form is None:
        return "For the norm write gradclip.clip_grad_norm_, for values gradclip.clip_grad_value_; keep it for the mode agc."
    return _filled(f"Write: {form}.", node, context)


def _filled(advice: str, node: cst.Call, context: Context) -> str:
    """The advice with what the call is given by place, or by the names that such functions have for it."""
    kept = ("value", "max_norm", "parameters", "params")
    told = [a for a in node.args if a.keyword is None or a.keyword.value in kept]
    given = [context.source.one_line(argument.value) for argument in told]
    return advice.format(*given[:2], *("parameters", "limit")[len(given[:2]) :])
