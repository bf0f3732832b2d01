"""PyTorch: ``torch.nn.utils``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gradclip.natives.model import Applied, Native

__all__ = ["NATIVES"]

_native = partial(Native, source="torch 2.13.0, torch/nn/utils/clip_grad.py")
_DOCS = "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.{}.html"
_NORM_DEPARTS: Mapping[str, str] = {
    "infinite-limit": "every gradient becomes NaN if one is infinite",
    "negative-limit": "the gradients change their sign",
    "sparse": "an error",
    "twice": "it counts twice, and is scaled twice",
}


def _names(name: str) -> tuple[str, ...]:
    return f"torch.nn.utils.{name}", f"torch.nn.utils.clip_grad.{name}"


NATIVES = (
    _native(
        code="GT101",
        names=_names("clip_grad_norm_"),
        applied=Applied.PARAMETERS,
        tensors="parameters",
        returns_norm=True,
        note="One norm over all gradients, in place; it returns the norm before clipping.",
        link=_DOCS.format("clip_grad_norm_"),
        departs=_NORM_DEPARTS,
        departs_also=("finite-norm", "wide-norm", "accurate-norm"),
    ),
    _native(
        code="GT102",
        names=_names("clip_grad_norm"),
        applied=Applied.PARAMETERS,
        tensors="parameters",
        returns_norm=True,
        status="deprecated",
        since="0.4.0",
        now="GT101",
        note="The name without the underscore is deprecated; it works in place all the same.",
        link=_DOCS.format("clip_grad_norm_"),
    ),
    _native(
        code="GT103",
        names=_names("clip_grad_value_"),
        applied=Applied.PARAMETERS,
        tensors="parameters",
        note="Each element between two bounds, in place; it returns None.",
        link=_DOCS.format("clip_grad_value_"),
        departs={"negative-limit": "every element becomes the bound", "nothing-to-clip": "an error"},
        departs_also=("wide-arithmetic", "integers"),
    ),
    _native(
        code="GT104",
        names=("torch.nn.utils.get_total_norm", "torch.nn.utils.clip_grad._get_total_norm"),
        applied=Applied.NORM,
        tensors="tensors",
        none="an error: it takes tensors",
        dialect_name="torch.clip_grad_norm",
        note="The norm of the tensors themselves: for parameters, their own norm and not that of their gradients.",
        link=_DOCS.format("get_total_norm"),
        departs_also=("wide-norm",),
    ),
    _native(
        code="GT105",
        names=("torch.nn.utils.clip_grads_with_norm_", "torch.nn.utils.clip_grad._clip_grads_with_norm_"),
        applied=Applied.PARAMETERS,
        dialect_name="torch.clip_grad_norm",
        signature_text="(parameters, max_norm, total_norm, foreach=None)",
        does_more=True,
        note="In place, by a norm that the caller knows; it returns None.",
        link=_DOCS.format("clip_grads_with_norm_"),
        departs_also=("wide-norm", "any-number"),
    ),
)
