"""PyTorch: ``torch.nn.utils``."""

from __future__ import annotations

from gradclip.migrate.apis import forms
from gradclip.migrate.apis.model import Api, Kind, Target, signature

__all__ = ["APIS"]

_DOCS = "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils."
_SOURCE = "torch 2.13.0, torch/nn/utils/clip_grad.py"
_ONCE = "Paddle's loops over its argument twice: pass a list, not a generator."


def _names(*names: str) -> tuple[str, ...]:
    return tuple(f"torch.nn.utils.{module}{name}" for name in names for module in ("", "clip_grad."))


_NORM = signature("(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None)")
_PADDLE_NORM = Target(
    "paddle.nn.utils.clip_grad_norm_",
    dropped=frozenset({"foreach"}),
    exact=False,
    note=_ONCE + " It has the orders 0, 1, 2, inf.",
)

APIS: tuple[Api, ...] = (
    Api(
        code="GT101",
        framework="torch",
        names=_names("clip_grad_norm_"),
        signature=_NORM,
        kind=Kind.IN_PLACE,
        returns="the norm before clipping",
        nones="a parameter without a gradient is left out",
        dialect="torch.clip_grad_norm",
        targets={"gradclip": Target("gradclip.clip_grad_norm_", exact=False), "paddle": _PADDLE_NORM},
        since=_SOURCE,
        note="One norm over all gradients, in place; it returns the norm before clipping.",
        link=_DOCS + "clip_grad_norm_.html",
    ),
    Api(
        code="GT102",
        framework="torch",
        names=_names("clip_grad_norm"),
        signature=_NORM,
        kind=Kind.IN_PLACE,
        returns="the norm before clipping",
        nones="a parameter without a gradient is left out",
        dialect="torch.clip_grad_norm",
        targets={
            "gradclip": Target("gradclip.clip_grad_norm_", exact=False),
            "torch": Target("torch.nn.utils.clip_grad_norm_", note="It is the same function under its present name."),
            "paddle": _PADDLE_NORM,
        },
        status="deprecated",
        since=f"0.4.0; {_SOURCE}",
        note="The name without the underscore is deprecated; it works in place all the same.",
        link=_DOCS + "clip_grad_norm_.html",
    ),
    Api(
        code="GT103",
        framework="torch",
        names=_names("clip_grad_value_"),
        signature=signature("(parameters, clip_value, foreach=None)"),
        kind=Kind.IN_PLACE,
        returns="None",
        nones="a parameter without a gradient is left out",
        dialect="torch.clip_grad_value",
        targets={
            "gradclip": Target("gradclip.clip_grad_value_"),
            "paddle": Target("paddle.nn.utils.clip_grad_value_", dropped=frozenset({"foreach"}), note=_ONCE),
            **forms.elementwise("clip_value", without="torch paddle"),
        },
        since=_SOURCE,
        note="Each element between two bounds, in place; it returns None.",
        link=_DOCS + "clip_grad_value_.html",
    ),
    Api(
        code="GT104",
        framework="torch",
        names=("torch.nn.utils.get_total_norm",),
        signature=signature("(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None)"),
        kind=Kind.MEASURE,
        returns="the norm",
        nones="an error: it takes tensors",
        dialect="torch.clip_grad_norm",
        targets={
            "gradclip": Target("gradclip.get_total_norm", exact=False),
            **forms.measured("tensors", without="torch", dropped="norm_type error_if_nonfinite foreach"),
        },
        since=_SOURCE,
        note="The norm of the tensors themselves: for parameters, their own norm and not that of their gradients.",
        link=_DOCS + "get_total_norm.html",
    ),
    Api(
        code="GT105",
        framework="torch",
        names=("torch.nn.utils.clip_grads_with_norm_",),
        signature=signature("(parameters, max_norm, total_norm, foreach=None)"),
        kind=Kind.IN_PLACE,
        returns="None",
        nones="a parameter without a gradient is left out",
        dialect="torch.clip_grad_norm",
        targets={"gradclip": Target("gradclip.clip_grads_with_norm_", exact=False)},
        since=_SOURCE,
        note="In place, by a norm that the caller knows; it returns None.",
        link=_DOCS + "clip_grads_with_norm_.html",
    ),
)
