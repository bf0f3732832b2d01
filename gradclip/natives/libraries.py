"""Clips of libraries around PyTorch: only ``gradclip explain`` uses them; no rewrite starts or ends here."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from gradclip.natives import BY_CODE
from gradclip.natives.model import Applied, Native

__all__ = ["LIBRARIES", "library"]

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
