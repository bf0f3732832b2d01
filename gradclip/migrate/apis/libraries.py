"""Clips of libraries around PyTorch: only ``gradclip explain`` uses them; no rewrite starts or ends here."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping

from gradclip.migrate.apis import torch
from gradclip.migrate.apis.model import Api, Kind, Target, signature

__all__ = ["LIBRARIES", "library"]

_OF_TORCH: Mapping[str, Api] = {api.names[0].rpartition(".")[2]: api for api in torch.APIS}
_ACCELERATE = "accelerate 1.14, src/accelerate/accelerator.py"
_ACCELERATE_DOCS = "https://huggingface.co/docs/accelerate/package_reference/accelerator"
_TIMM = "timm 1.0.28, timm/utils/clip_grad.py"
_TIMM_LINK = "https://github.com/huggingface/pytorch-image-models/blob/main/timm/utils/"
_PREPARED = "After accelerator.unscale_gradients(), and not for FSDP or DeepSpeed."


def _accelerate(name: str, given: str, sharded: str) -> Api:
    native = _OF_TORCH[name]
    targets = {
        **native.targets,
        "gradclip": dataclasses.replace(native.targets["gradclip"], note=_PREPARED),
        "torch": Target(native.names[0], note=_PREPARED),
    }
    return dataclasses.replace(
        native,
        code="accelerate",
        names=(f"accelerate.Accelerator.{name}",),
        signature=signature(given),
        targets=targets,
        note=f"{native.note} It unscales the gradients first; with FSDP or DeepSpeed {sharded}.",
        since=_ACCELERATE,
        link=_ACCELERATE_DOCS,
    )


def _dispatched(mode: str, name: str, limit: str) -> Api:
    native = _OF_TORCH[name]
    arguments = {"parameters": "parameters", "value": limit, **({"norm_type": "norm_type"} if mode == "norm" else {})}
    targets = {**native.targets, "torch": Target(native.names[0])}
    return dataclasses.replace(
        native,
        code="timm",
        names=("timm.utils.dispatch_clip_grad",),
        signature=signature(f"(parameters, value, mode={mode!r}, norm_type=2.0)"),
        dialect_arguments=arguments,
        targets={
            framework: dataclasses.replace(target, arguments=arguments)
            for framework, target in targets.items()
            if not target.by_hand and not target.form
        },
        returns="None",
        note=f"With the mode {mode!r} it is torch's {name}.",
        since=_TIMM,
        link=_TIMM_LINK + "clip_grad.py",
    )


def _adaptive(name: str, given: str, link: str) -> Api:
    return Api(
        code="timm",
        framework="torch",
        names=(f"timm.utils.{name}",),
        signature=signature(given),
        kind=Kind.IN_PLACE,
        returns="None",
        dialect="",
        targets={},
        since=_TIMM,
        note="Adaptive clipping: it limits the norm of each row of a gradient to value (clip_factor) times the norm of the "
        "parameter's row, taken as at least eps = 1e-3. optax.adaptive_grad_clip does the same by columns, its layers' units.",
        link=_TIMM_LINK + link,
    )


#: name as written, with the usual names of the objects -> its API
LIBRARIES: Mapping[str, Api] = {
    r"(\w+\.)*accelerator\.clip_grad_norm_|(accelerate\.)?Accelerator\.clip_grad_norm_": _accelerate(
        "clip_grad_norm_", "(parameters, max_norm, norm_type=2.0)", "their own clips take over"
    ),
    r"(\w+\.)*accelerator\.clip_grad_value_|(accelerate\.)?Accelerator\.clip_grad_value_": _accelerate(
        "clip_grad_value_", "(parameters, clip_value)", "it raises"
    ),
    r"((timm\.)?utils\.)?(clip_grad\.)?dispatch_clip_grad": _dispatched("norm", "clip_grad_norm_", "max_norm"),
    r"((timm\.)?utils\.)?(agc\.)?adaptive_clip_grad": _adaptive(
        "adaptive_clip_grad", "(parameters, clip_factor=0.01, eps=1e-3, norm_type=2.0)", "agc.py"
    ),
}
_MODES: Mapping[str, Api] = {
    "'value'": _dispatched("value", "clip_grad_value_", "clip_value"),
    "'agc'": _adaptive("dispatch_clip_grad", "(parameters, value, mode='agc', norm_type=2.0)", "clip_grad.py"),
}


def library(name: str, node: ast.Call | None = None) -> Api | None:
    """The library clip that a written name stands for, if any.

    Args:
        name: the name as written.
        node: the call; timm's function takes its mode from it.

    >>> library("self.accelerator.clip_grad_norm_").dialect
    'torch.clip_grad_norm'
    """
    api = next((api for pattern, api in LIBRARIES.items() if re.fullmatch(pattern, name)), None)
    if node is None or not name.endswith("dispatch_clip_grad"):
        return api
    given = {str(number): value for number, value in enumerate(node.args)} | {str(k.arg): k.value for k in node.keywords}
    mode = given.get("mode", given.get("2"))
    return api if mode is None else _MODES.get(ast.unparse(mode), api)
