"""Paddle: the clips of its optimizers' ``grad_clip=`` slot, and the one it ported from torch.

Source: paddlepaddle 3.3.1, ``paddle/nn/clip.py`` and ``paddle/nn/utils/clip_grad_norm_.py``.
"""

from __future__ import annotations

import math
from typing import SupportsFloat

from gradclip.core.errors import ArgumentError
from gradclip.core.rule import GLOBAL, TENSOR, VALUE, EachRule, Rule, number_or_tensor
from gradclip.core.tracing import untraced
from gradclip.core.typed import Array, Limit
from gradclip.dialects import torch

__all__ = ["clip_grad_by_global_norm", "clip_grad_by_norm", "clip_grad_by_value", "clip_grad_norm", "clip_grad_value"]


@untraced
def clip_grad_by_norm(clip_norm: Limit) -> EachRule:
    """Each gradient by its own Euclidean norm.

    ``g * clip_norm / max(norm(g), clip_norm)``

    Args:
        clip_norm: the limit, above 0; infinity measures only.

    Raises:
        ValueError: for a limit that is 0, negative or NaN.

    Source: paddlepaddle 3.3.1, ``paddle/nn/clip.py``, ``ClipGradByNorm``; its kernel is
    ``paddle/phi/kernels/impl/clip_by_norm_kernel_impl.h``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import paddle
    >>> gradclip.clip([np.array([3.0, 4.0]), np.array([0.5])], paddle.clip_grad_by_norm(1.0)).grads
    [array([0.6, 0.8]), array([0.5])]
    """
    limit = number_or_tensor("clip_norm", clip_norm, text=True, follows=True)
    if isinstance(limit, float) and limit == 0:
        raise ArgumentError("clip_norm must be greater than 0.", f"clip_norm={limit}")
    return EachRule(name="paddle.clip_grad_by_norm", scope=TENSOR, limit=limit, limit_name="clip_norm")


@untraced
def clip_grad_by_global_norm(clip_norm: Limit, group_name: str = "default_group", auto_skip_clip: bool = False) -> Rule:
    """One Euclidean norm over all gradients.

    ``g_i * clip_norm / max(n, clip_norm), with n = norm(g_1, ..., g_k)``

    Args:
        clip_norm: the limit, 0 to infinity; infinity measures only.
        group_name: accepted and of no effect, as in Paddle's dynamic mode.
        auto_skip_clip: clip only where the norm is above the limit, so that a NaN norm clips nothing.

    Raises:
        ValueError: for a negative or NaN limit.
        AssertionError: if ``auto_skip_clip`` is not a bool.

    Source: paddlepaddle 3.3.1, ``paddle/nn/clip.py``, ``ClipGradByGlobalNorm``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import paddle
    >>> gradclip.clip([np.array([3.0]), np.array([4.0])], paddle.clip_grad_by_global_norm(1.0)).grads
    [array([0.6]), array([0.8])]
    """
    if not isinstance(auto_skip_clip, bool):
        raise AssertedError("auto_skip_clip must be True or False.", f"auto_skip_clip={auto_skip_clip!r}")
    return Rule(
        name="paddle.clip_grad_by_global_norm",
        scope=GLOBAL,
        limit=number_or_tensor("clip_norm", clip_norm, text=True, follows=True),
        limit_name="clip_norm",
        keep_if_nan=auto_skip_clip,
    )


@untraced
def clip_grad_by_value(max: SupportsFloat | Array, min: SupportsFloat | Array | None = None) -> EachRule:
    """Each element between ``min`` and ``max``; the order of the arguments is Paddle's, the upper bound first.

    ``max(min(g, upper), lower)``

    Args:
        max: the upper bound.
        min: the lower bound; ``-max`` if None, and then ``max`` must be above 0.

    Raises:
        ValueError, AssertionError: one exception that is both, for bounds that are numbers and cross.
        TypeError: for bounds that are not numbers.

    Source: paddlepaddle 3.3.1, ``paddle/nn/clip.py``, ``ClipGradByValue``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import paddle
    >>> gradclip.clip(np.array([3.0, -4.0]), paddle.clip_grad_by_value(1.0, -2.0)).grads
    array([ 1., -2.])
    """
    upper = number_or_tensor("max", max)
    if min is None:
        if isinstance(upper, float) and upper <= 0:
            raise AssertedError("max must be greater than 0 where min is not given.", f"max={upper}, min=None")
        lower = -upper
    else:
        lower = number_or_tensor("min", min)
    if isinstance(upper, float) and isinstance(lower, float) and lower > upper:
        raise AssertedError("max must not be less than min.", f"max={upper}, min={lower}", "Paddle's order is max, min.")
    return EachRule(name="paddle.clip_grad_by_value", scope=VALUE, lower=lower, upper=upper)


@untraced
def clip_grad_norm(max_norm: Limit, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Rule:
    """``paddle.nn.utils.clip_grad_norm_``: torch's formula with the orders 0, 1, 2 and infinity.

    ``g_i * min(1, max_norm / (n + 1e-6))``

    Args:
        max_norm: the limit, 0 to infinity; infinity measures only.
        norm_type: the order: 0, 1, 2 or ``float("inf")``.
        error_if_nonfinite: raise, naming the gradients, instead of scaling by a norm that is infinite or NaN.

    Raises:
        ValueError: for any other order, and for a negative or NaN limit.

    Source: paddlepaddle 3.3.1, ``paddle/nn/utils/clip_grad_norm_.py``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import paddle
    >>> gradclip.clip(np.array([3.0, 4.0]), paddle.clip_grad_norm(1.0, norm_type=1)).norm
    np.float64(7.0)
    """
    if norm_type not in (math.inf, 0, 1, 2):
        hint = "the torch dialect takes any order."
        raise ArgumentError("norm_type must be one of inf, 0, 1 and 2.", f"norm_type={norm_type!r}", hint)
    return Rule(
        name="paddle.clip_grad_norm",
        scope=GLOBAL,
        limit=number_or_tensor("max_norm", max_norm, text=True, follows=True),
        limit_name="max_norm",
        order=float(norm_type),
        eps=torch.EPSILON,
        error_if_nonfinite=bool(error_if_nonfinite),
    )


@untraced
def clip_grad_value(clip_value: SupportsFloat | Array) -> EachRule:
    """``paddle.nn.utils.clip_grad_value_``: each element between ``-clip_value`` and ``clip_value``.

    ``max(min(g, clip_value), -clip_value)``

    Args:
        clip_value: the bound, 0 to infinity.

    Raises:
        ValueError: for a negative or NaN bound.

    Source: paddlepaddle 3.3.1, ``paddle/nn/utils/clip_grad_value_.py``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import paddle
    >>> gradclip.clip(np.array([3.0, -4.0]), paddle.clip_grad_value(1.0)).grads
    array([ 1., -1.])
    """
    return torch.symmetric("paddle.clip_grad_value", "clip_value", number_or_tensor("clip_value", clip_value, text=True))


clip_grad_norm_ = clip_grad_norm  # the natives' spelling
clip_grad_value_ = clip_grad_value
ClipGradByNorm = clip_grad_by_norm
ClipGradByGlobalNorm = clip_grad_by_global_norm
ClipGradByValue = clip_grad_by_value


class AssertedError(ArgumentError, AssertionError):
    """An error that is an ``AssertionError`` in some of Paddle's functions and a ``ValueError`` in others."""
