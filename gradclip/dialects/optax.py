"""optax: by value, by the norm over all gradients, by root mean square, relative to the parameters, and per example.

Source: optax 0.2.8, ``optax/transforms/_clipping.py``.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.rule import AXES, EXAMPLE, GLOBAL, TENSOR, EachRule, Rule, number_or_tensor
from gradclip.core.tracing import untraced
from gradclip.core.typed import Array, Limit
from gradclip.dialects.tensorflow import axes_tuple
from gradclip.dialects.torch import symmetric

__all__ = ["adaptive_grad_clip", "clip", "clip_by_block_rms", "clip_by_global_norm", "per_example_global_norm_clip"]


@untraced
def clip_by_global_norm(max_norm: Limit) -> Rule:
    """One Euclidean norm over all gradients.

    ``g_i if n < max_norm else g_i * max_norm / n, with n = norm(g_1, ..., g_k)``

    Args:
        max_norm: the limit, 0 to infinity; infinity measures only.

    Raises:
        ValueError: for a negative or NaN limit.

    Source: optax 0.2.8, ``optax/transforms/_clipping.py``, ``clip_by_global_norm``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import optax
    >>> gradclip.clip({"w": np.array([3.0, 4.0])}, optax.clip_by_global_norm(1.0)).grads
    {'w': array([0.6, 0.8])}
    """
    return Rule(
        name="optax.clip_by_global_norm",
        scope=GLOBAL,
        limit=number_or_tensor("max_norm", max_norm, follows=True),
        limit_name="max_norm",
    )


@untraced
def clip(max_delta: SupportsFloat | Array) -> EachRule:
    """Each element between ``-max_delta`` and ``max_delta``; NaN stays NaN.

    ``max(min(g, max_delta), -max_delta)``

    Args:
        max_delta: the bound, 0 to infinity.

    Raises:
        ValueError: for a negative or NaN bound.

    Source: optax 0.2.8, ``optax/transforms/_clipping.py``, ``clip``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import optax
    >>> gradclip.clip(np.array([3.0, -0.5]), optax.clip(1.0)).grads
    array([ 1. , -0.5])
    """
    return symmetric("optax.clip", "max_delta", number_or_tensor("max_delta", max_delta))


@untraced
def clip_by_block_rms(threshold: Limit) -> EachRule:
    """Each gradient by its own root mean square.

    ``g / max(1, rms(g) / threshold), with rms(g) = norm(g) / sqrt(size(g))``

    Args:
        threshold: the limit, 0 to infinity; infinity measures only.

    Raises:
        ValueError: for a negative or NaN limit.

    Source: optax 0.2.8, ``optax/transforms/_clipping.py``, ``clip_by_block_rms``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import optax
    >>> gradclip.clip(np.array([3.0, 4.0]), optax.clip_by_block_rms(1.0)).grads.round(4)
    array([0.8485, 1.1314])
    """
    return EachRule(
        name="optax.clip_by_block_rms",
        scope=TENSOR,
        limit=number_or_tensor("threshold", threshold, follows=True),
        limit_name="threshold",
        mean=True,
    )


@untraced
def adaptive_grad_clip(clipping: SupportsFloat | Array, eps: float = 1e-3, axis: Any = None) -> EachRule:
    """Each unit of a gradient to at most ``clipping`` times the norm of the same unit of its parameter.

    ``g_u if norm(g_u) < L else g_u * L / max(norm(g_u), 1e-6), with L = clipping * max(norm(w_u), eps)``

    A unit is a whole vector, a column of a matrix, an output channel of a convolution. Pass the parameters:
    ``gradclip.clip(grads, rule, params=params)``, or clip parameters that hold their gradients.

    A unit whose norm is more than 8e37 times L, in float32, has a coefficient below the normal numbers: PyTorch is then off by
    up to 1e-4, and TensorFlow and JAX give 0.

    Args:
        clipping: the ratio, 0 to infinity; infinity measures only.
        eps: the smallest norm of a parameter that counts: a number, 0 to infinity.
        axis: the axes of a unit, if they are not the usual ones; required above five dimensions.

    Raises:
        ValueError: for a ratio or ``eps`` that is negative or NaN.
        TypeError: for an argument that is not a number.

    Source: optax 0.2.8, ``optax/transforms/_clipping.py``, ``adaptive_grad_clip``; `Brock et al., High-Performance
    Large-Scale Image Recognition Without Normalization <https://arxiv.org/abs/2102.06171>`_.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import optax
    >>> gradclip.clip(np.array([3.0, 4.0]), optax.adaptive_grad_clip(0.5), params=np.array([0.6, 0.8])).grads
    array([0.3, 0.4])
    """
    return EachRule(
        name="optax.adaptive_grad_clip",
        scope=AXES,
        limit=number_or_tensor("clipping", clipping),
        limit_name="clipping",
        axes=None if axis is None else axes_tuple("axis", axis),
        unit_axes=True,
        min_divisor=1e-6,
        relative_to=_least_norm(eps),
    )


def _least_norm(eps: Any) -> float:
    try:
        least = float(number_or_tensor("eps", eps))
    except ArgumentError:
        raise
    except (TypeError, ValueError):
        raise ArgumentTypeError("eps must be a number.", f"eps={shown(eps)}") from None
    if not least >= 0:
        raise ArgumentError("eps must not be negative.", f"eps={least}")
    return least


@untraced
def per_example_global_norm_clip(l2_norm_clip: SupportsFloat | Array) -> EachRule:
    """One norm over all gradients for each example; the result is the sum over the examples.

    ``sum over b of g_ib * min(1, l2_norm_clip / n_b), with n_b = norm(g_1b, ..., g_kb)``

    The first axis of every gradient is the axis of the examples. An example with a NaN norm is not scaled. The sum of a
    gradient of integers has the widest dtype of the others, or float32; they are squared as floats, and do not wrap. The
    native's count of clipped examples is ``(result.coefficient < 1).sum()``.

    Args:
        l2_norm_clip: the limit, 0 to infinity; infinity sums only.

    Raises:
        ValueError: for a negative or NaN limit. The clip raises for gradients without a common first axis.

    Source: optax 0.2.8, ``optax/transforms/_clipping.py``, ``per_example_global_norm_clip``; `Abadi et al., Deep Learning
    with Differential Privacy <https://arxiv.org/abs/1607.00133>`_.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import optax
    >>> per_example = np.array([[3.0, 4.0], [0.3, 0.4]])
    >>> gradclip.clip(per_example, optax.per_example_global_norm_clip(1.0)).grads
    array([0.9, 1.2])
    """
    return EachRule(
        name="optax.per_example_global_norm_clip",
        scope=EXAMPLE,
        limit=number_or_tensor("l2_norm_clip", l2_norm_clip),
        limit_name="l2_norm_clip",
        keep_if_nan=True,
    )
