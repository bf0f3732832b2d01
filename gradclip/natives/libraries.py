"""Clips of libraries around the frameworks: explained and reported; no rewrite starts or ends here."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gradclip.natives import BY_CODE
from gradclip.natives.model import Applied, Native

__all__ = ["LIBRARIES", "OTHERS", "ROWS", "SHARDS", "Library", "library", "other"]

_ACCELERATE = "accelerate 1.14, src/accelerate/accelerator.py"
_ACCELERATE_DOCS = "https://huggingface.co/docs/accelerate/package_reference/accelerator"
_TIMM = "timm 1.0.28, timm/utils/clip_grad.py"
_TIMM_LINK = "https://github.com/huggingface/pytorch-image-models/blob/main/timm/utils/"
_NORM, _VALUE = "torch.clip_grad_norm", "torch.clip_grad_value"


def _accelerate(name: str, given: str, dialect: str, note: str, *, returns_norm: bool) -> Native:
    return Native(
        code="accelerate",
        names=(f"accelerate.Accelerator.{name}",),
        applied=Applied.PARAMETERS,
        signature_text=given,
        dialect_name=dialect,
        returns_norm=returns_norm,
        note=note,
        source=_ACCELERATE,
        link=_ACCELERATE_DOCS,
        advice="After accelerator.unscale_gradients(), and not for FSDP or DeepSpeed.",
    )


def _dispatched(mode: str, dialect: str, limit: str) -> Native:
    return Native(
        code="timm",
        names=("timm.utils.dispatch_clip_grad",),
        applied=Applied.PARAMETERS,
        signature_text=f"(parameters, value, mode={mode!r}, norm_type=2.0)",
        dialect_name=dialect,
        called={"value": limit},
        note=f"With the mode {mode!r} it is torch's clip_grad_{mode}_.",
        source=_TIMM,
        link=_TIMM_LINK + "clip_grad.py",
    )


def _adaptive(name: str, given: str, link: str) -> Native:
    return Native(
        code="timm",
        names=(f"timm.utils.{name}",),
        applied=Applied.PARAMETERS,
        signature_text=given,
        dialect_name="",
        note="Adaptive clipping: it limits the norm of each row of a gradient to value (clip_factor) times the norm of the "
        "parameter's row, taken as at least eps = 1e-3. "
        f"{BY_CODE['GO504'].shown} does the same by columns, its layers' units.",
        source=_TIMM,
        link=_TIMM_LINK + link,
    )


#: name as written, with the usual names of the objects -> its record
LIBRARIES: Mapping[str, Native] = {
    r"(\w+\.)*accelerator\.clip_grad_norm_|(accelerate\.)?Accelerator\.clip_grad_norm_": _accelerate(
        "clip_grad_norm_",
        "(parameters, max_norm, norm_type=2.0)",
        _NORM,
        "One norm over all gradients, in place; it returns the norm before clipping. It unscales the gradients first; with "
        "FSDP or DeepSpeed their own clips take over.",
        returns_norm=True,
    ),
    r"(\w+\.)*accelerator\.clip_grad_value_|(accelerate\.)?Accelerator\.clip_grad_value_": _accelerate(
        "clip_grad_value_",
        "(parameters, clip_value)",
        _VALUE,
        "Each element between two bounds, in place; it returns None. It unscales the gradients first; with FSDP or DeepSpeed "
        "it raises.",
        returns_norm=False,
    ),
    r"((timm\.)?utils\.)?(clip_grad\.)?dispatch_clip_grad": _dispatched("norm", _NORM, "max_norm"),
    r"((timm\.)?utils\.)?(agc\.)?adaptive_clip_grad": _adaptive(
        "adaptive_clip_grad", "(parameters, clip_factor=0.01, eps=1e-3, norm_type=2.0)", "agc.py"
    ),
}
_MODES: Mapping[str, Native] = {
    "'value'": _dispatched("value", _VALUE, "clip_value"),
    "'agc'": _adaptive("dispatch_clip_grad", "(parameters, value, mode='agc', norm_type=2.0)", "clip_grad.py"),
}


def library(name: str, node: ast.Call | None = None) -> Native | None:
    """The library's clip that a written name stands for, if any.

    Args:
        name: the name as written.
        node: the call; timm's function takes its mode from it.

    >>> library("self.accelerator.clip_grad_norm_").dialect
    'torch.clip_grad_norm'
    """
    native = next((native for pattern, native in LIBRARIES.items() if re.fullmatch(pattern, name)), None)
    if node is None or not name.endswith("dispatch_clip_grad"):
        return native
    given = {str(number): value for number, value in enumerate(node.args)} | {str(k.arg): k.value for k in node.keywords}
    mode = given.get("mode", given.get("2"))
    return native if mode is None else _MODES.get(ast.unparse(mode), native)


# ---- the clips that no record has ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Library:
    """A clip of another library that no record has: only what it does, and what to do with it."""

    does: str
    advice: str  #: ``{0}`` and ``{1}`` stand for the gradients and the limit
    keys: str = ""  #: of a class, the keywords that clip


_CALL = "gradclip.clip_grad_norm_({0}, {1})"
ROWS = f"Keep it: gradclip.dialects.{BY_CODE['GO504'].dialect} has optax's units, which are columns."
_TRAINER = "Keep it: the trainer knows when the gradients are ready."
SHARDS = "Keep it: it knows how the gradients are split."
_SLOT = "Keep it, or clip with gradclip where the gradients are ready."
#: a pattern of qualified names -> their meaning; the last part is one name or several
OTHERS: Mapping[str, Library] = {
    r"timm\.utils\.(agc\.)?adaptive_clip_grad": Library(
        "timm clips each row of a gradient relative to the norm of its parameter's row: adaptive clipping",
        ROWS,
    ),
    r"pytorch_optimizer(\.\w+)*\.agc": Library(
        "pytorch-optimizer scales each row of a gradient relative to the norm of its parameter's row: adaptive clipping", ROWS
    ),
    r"apex\.contrib\.clip_grad\.(clip_grad\.)?clip_grad_norm_": Library(
        "apex's function takes torch's arguments and clips by one norm over all gradients", f"Write: {_CALL}."
    ),
    r"fairseq\.utils\.clip_grad_norm_": Library(
        "fairseq clips by one norm over all gradients, and only measures where the limit is 0",
        f"Write: {_CALL}; call it only where the limit is above 0.",
    ),
    r"detectron2\.solver\.(build\.)?maybe_add_gradient_clipping": Library(
        "detectron2 makes an optimizer that clips each parameter's gradient before its step, as SOLVER.CLIP_GRADIENTS says",
        "Keep it, or write: optimizer = gradclip.clipped(optimizer, rule).",
    ),
    r"paddle\.(fluid|nn)\.clip\.append_gradient_clip_ops": Library(
        "It applies the clips that set_gradient_clip has set for the parameters",
        "Remove it, and pass the clip to grad_clip= of the optimizer.",
    ),
    r"mlx\.optimizers\.(optimizers\.)?clip_grad_norm": Library(
        "MLX clips by one norm over all gradients, and returns them with the norm",
        "Write: gradclip.clip({0}, gradclip.dialects.torch.clip_grad_norm({1})).",
    ),
    r"rlax(\._src)?(\.\w+)?\.clip_gradient": Library(
        "RLax passes a value on, and clips each element of its gradient on the way back",
        "Keep it: it bounds a gradient within the loss, and gradclip those of the parameters.",
    ),
    r"torchopt\.(clip\.)?clip_grad_norm": Library("torchopt makes a transformation that clips by one norm", _SLOT),
    r"fastai(\.\w+)*\.GradientClip": Library("fastai clips by one norm in a callback", _SLOT),
    r"skorch(\.\w+)*\.GradientNormClipping": Library("skorch clips by one norm in a callback", _SLOT),
    r"chainer\.(optimizer|optimizer_hooks)(\.\w+)*\.(GradientClipping|GradientHardClipping)": Library(
        "Chainer clips in a hook of the optimizer", _SLOT
    ),
    r"mxnet\.gluon\.utils\.clip_global_norm": Library("MXNet clips by one norm over all arrays, in place", _SLOT),
    r"tensorpack(\.\w+)*\.GlobalNormClip": Library("tensorpack clips by one norm over all gradients", _SLOT),
    r"levanter\.optim(\.\w+)*\.(ClipUpdateNormConfig|clip_update_norm)": Library(
        "Levanter clips the optimizer's updates, relative to the norms of past steps",
        "Keep it: gradclip clips gradients, before the optimizer.",
    ),
    r"megatron\.core\.optimizer(\.\w+)*\.(clip_grad_norm_fp32|clip_grad_by_total_norm_fp32)": Library(
        "Megatron clips by one norm over the shards of all processes", SHARDS
    ),
    r"torchtitan\.distributed\.utils\.clip_grad_norm_": Library(
        "torchtitan clips by one norm over the meshes and the stages of a pipeline",
        f"Keep it, or write: {_CALL}; a pipeline needs reduce= too.",
    ),
    r"allennlp\.training(\.\w+)*\.GradientDescentTrainer": Library(
        "AllenNLP's trainer clips, by one norm (grad_norm) or by value (grad_clipping)", _TRAINER, "grad_norm grad_clipping"
    ),
    r"colossalai\.booster\.plugin(\.\w+)*\.(GeminiPlugin|HybridParallelPlugin|LowLevelZeroPlugin)": Library(
        "Colossal-AI's optimizer clips by one norm over the shards of all processes", SHARDS, "max_norm"
    ),
    r"composer(\.trainer)*\.Trainer": Library("Composer's trainer clips by one norm", _TRAINER, "grad_clip_norm"),
    r"megatron\.core\.optimizer(\.\w+)*\.OptimizerConfig": Library(
        "Megatron's optimizer clips by one norm over the shards of all processes", SHARDS, "clip_grad"
    ),
    r"pytorch_optimizer(\.\w+)*\.(LOMO|AdaLOMO)": Library(
        "The optimizer clips during the backward pass, and never has all gradients at once",
        "Keep it.",
        "clip_grad_norm clip_grad_value",
    ),
    r"bitsandbytes\.optim(\.\w+)*\.(Adam8bit|AdamW8bit|LAMB8bit|Lion8bit|RMSprop8bit|SGD8bit|Adagrad8bit|LARS8bit)": Library(
        "bitsandbytes clips each gradient by its own norm, at this percentile of its last 100; 100 switches it off",
        "Keep it: it clips within the optimizer's step.",
        "percentile_clipping",
    ),
    r"[\w.]*\.(adafactor|Adafactor|AdaFactor|scale_by_adafactor)": Library(
        "Adafactor bounds the root mean square of each update by this threshold",
        "Keep it: gradclip clips gradients, before the optimizer.",
        "clipping_threshold clip_threshold",
    ),
}


def other(name: str) -> Library | None:
    """What is known of a qualified name that no record has.

    >>> other("fairseq.utils.clip_grad_norm_").does
    'fairseq clips by one norm over all gradients, and only measures where the limit is 0'
    """
    return next((library for pattern, library in OTHERS.items() if re.fullmatch(pattern, name)), None)
