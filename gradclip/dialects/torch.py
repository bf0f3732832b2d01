"""PyTorch: the norm over all gradients, an epsilon in the denominator, any order.

Source: torch 2.13.0, ``torch/nn/utils/clip_grad.py``.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.rule import GLOBAL, VALUE, EachRule, Rule, number_or_tensor
from gradclip.core.tracing import untraced
from gradclip.core.typed import Array, Limit

__all__ = ["clip_grad_norm", "clip_grad_value"]

EPSILON = 1e-6  #: ``max_norm / (total_norm + 1e-6)``


@untraced
def clip_grad_norm(
    max_norm: Limit, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Rule:
    """One norm over all gradients.

    ``g_i * min(1, max_norm / (n + 1e-6)), with n = norm(norm(g_1), ..., norm(g_k)) of order p``

    Args:
        max_norm: the limit, 0 to infinity; infinity measures only.
        norm_type: the order p, any real, ``inf``, ``-inf`` or their names; 0 counts the *gradients* that are not all zero.
        error_if_nonfinite: raise, naming the gradients, instead of scaling by a norm that is infinite or NaN.
        foreach: accepted and of no effect; gradclip always takes the fastest way.

    Raises:
        ValueError: for a negative or NaN limit.
        TypeError: for a limit or an order that is not a number.

    Source: torch 2.13.0, ``torch/nn/utils/clip_grad.py``, ``clip_grad_norm_``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import torch
    >>> gradclip.clip([np.array([3.0, 4.0]), np.array([1.0, 2.0])], torch.clip_grad_norm(5.0)).norm
    np.float64(5.477225575051661)
    """
    return Rule(
        name="torch.clip_grad_norm",
        scope=GLOBAL,
        limit=number_or_tensor("max_norm", max_norm, text=True, follows=True),
        limit_name="max_norm",
        order=order("norm_type", norm_type),
        eps=EPSILON,
        error_if_nonfinite=bool(error_if_nonfinite),
    )


@untraced
def clip_grad_value(clip_value: SupportsFloat | Array, foreach: bool | None = None) -> EachRule:
    """Each element between ``-clip_value`` and ``clip_value``; NaN stays NaN.

    ``max(min(g, clip_value), -clip_value)``

    Args:
        clip_value: the bound, 0 to infinity.
        foreach: accepted and of no effect.

    Raises:
        ValueError: for a negative or NaN bound.

    Source: torch 2.13.0, ``torch/nn/utils/clip_grad.py``, ``clip_grad_value_``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import torch
    >>> gradclip.clip(np.array([3.0, -0.5]), torch.clip_grad_value(1.0)).grads
    array([ 1. , -0.5])
    """
    return symmetric("torch.clip_grad_value", "clip_value", number_or_tensor("clip_value", clip_value, text=True))


def symmetric(name: str, limit_name: str, bound: Any) -> EachRule:
    """A rule that clips each element to [-bound, bound]."""
    return EachRule(name=name, scope=VALUE, limit=bound, limit_name=limit_name, lower=-bound, upper=bound)


def order(name: str, value: Any) -> float:
    """An order as torch reads it: anything that ``float`` accepts."""
    try:
        return float(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} must be a number.", f"{name}={shown(value)}", "2.0, 1.0, or float('inf').") from None
    except (ValueError, OverflowError):
        raise ArgumentError(f"{name} must be a number.", f"{name}={shown(value)}", "2.0, 1.0, or float('inf').") from None


clip_grad_norm_ = clip_grad_norm  # the natives' spelling
clip_grad_value_ = clip_grad_value
