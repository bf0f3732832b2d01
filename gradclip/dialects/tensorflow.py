"""TensorFlow: by a tensor's own norm, over any of its axes, or by the norm over all tensors.

Source: tensorflow 2.21.0, ``tensorflow/python/ops/clip_ops.py``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, SupportsFloat

from gradclip.core.errors import ArgumentTypeError, shown
from gradclip.core.rule import AXES, GLOBAL, TENSOR, VALUE, EachRule, Rule, number_or_tensor
from gradclip.core.tracing import untraced
from gradclip.core.typed import Array, Limit

__all__ = ["clip_by_global_norm", "clip_by_norm", "clip_by_value"]


@untraced
def clip_by_norm(clip_norm: Limit, axes: Any = None, name: str | None = None) -> EachRule:
    """Each tensor by its own Euclidean norm, over all its axes or some of them.

    ``g * clip_norm / max(norm(g), clip_norm)``

    Args:
        clip_norm: the limit; a negative one counts as 0, infinity measures only. A tensor may have any shape that
            broadcasts against the norms with their reduced axes kept: one limit a row, for example.
        axes: the axes of the norm: an int, several, None for all, an empty list for each element separately.
        name: accepted and of no effect.

    Raises:
        ValueError: for a NaN limit. The clip raises for axes that are out of range or named twice.
        TypeError: for a limit or axes that are not numbers.

    Source: tensorflow 2.21.0, ``tensorflow/python/ops/clip_ops.py``, ``clip_by_norm``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import tensorflow
    >>> gradclip.clip(np.array([[3.0, 4.0], [0.3, 0.4]]), tensorflow.clip_by_norm(1.0, axes=[1])).grads
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    limit = number_or_tensor("clip_norm", clip_norm, one_element=False, follows=axes is None)
    whole = axes is None and (isinstance(limit, float) or tuple(getattr(limit, "shape", ())) == ())
    return EachRule(
        name="tensorflow.clip_by_norm",
        scope=TENSOR if whole else AXES,
        limit=max(limit, 0.0) if isinstance(limit, float) and limit == limit else limit,
        limit_name="clip_norm",
        axes=None if axes is None else axes_tuple("axes", axes),
        negative_is_zero=True,
    )


@untraced
def clip_by_global_norm(clip_norm: Limit, use_norm: Any = None, name: str | None = None) -> Rule:
    """One Euclidean norm over all tensors; an infinite norm makes every gradient NaN, to signal that an error occurred.

    ``g_i * clip_norm / max(n, clip_norm), with n = norm(g_1, ..., g_k)``

    Args:
        clip_norm: the limit, 0 to infinity; infinity measures only.
        use_norm: not part of a rule: pass a known norm to :func:`gradclip.scale_by_norm`.
        name: accepted and of no effect.

    Raises:
        ValueError: for a negative or NaN limit.
        TypeError: for a limit that is not a number, and for ``use_norm``.

    Source: tensorflow 2.21.0, ``tensorflow/python/ops/clip_ops.py``, ``clip_by_global_norm``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import tensorflow
    >>> gradclip.clip([np.array([3.0]), None, np.array([4.0])], tensorflow.clip_by_global_norm(1.0)).grads
    [array([0.6]), None, array([0.8])]
    """
    if use_norm is not None:
        raise ArgumentTypeError(
            "A rule has no norm of its own.", f"use_norm={shown(use_norm)}", "gradclip.scale_by_norm(grads, rule, norm)."
        )
    return Rule(
        name="tensorflow.clip_by_global_norm",
        scope=GLOBAL,
        limit=number_or_tensor("clip_norm", clip_norm, one_element=False, follows=True),
        limit_name="clip_norm",
        nan_if_infinite=True,
    )


@untraced
def clip_by_value(
    clip_value_min: SupportsFloat | Array, clip_value_max: SupportsFloat | Array, name: str | None = None
) -> EachRule:
    """Each element between two bounds; the lower one wins if they cross. NaN stays NaN.

    Of a sparse gradient it clips the rows that are stored; the others stay 0, also where the bounds exclude 0. Duplicate rows
    are added up first, unless a bound has a row for each stored row.

    ``max(min(g, clip_value_max), clip_value_min)``

    Args:
        clip_value_min, clip_value_max: numbers, or tensors that broadcast to the gradient's shape; for a sparse gradient, to
            the shape of its stored rows.
        name: accepted and of no effect.

    Raises:
        ValueError: for a bound of NaN.

    Source: tensorflow 2.21.0, ``tensorflow/python/ops/clip_ops.py``, ``clip_by_value``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import tensorflow
    >>> gradclip.clip(np.array([3.0, -4.0]), tensorflow.clip_by_value(-1.0, 2.0)).grads
    array([ 2., -1.])
    """
    return EachRule(
        name="tensorflow.clip_by_value",
        scope=VALUE,
        lower=number_or_tensor("clip_value_min", clip_value_min, one_element=False),
        upper=number_or_tensor("clip_value_max", clip_value_max, one_element=False),
        stored_only=True,
    )


def axes_tuple(name: str, axes: Any) -> tuple[int, ...]:
    """Axes given as an int, a tensor, or several of either."""
    try:
        if getattr(axes, "shape", None) == () or not isinstance(axes, Iterable):
            return (operator.index(axes),)
        if isinstance(axes, (str, bytes)):
            raise TypeError
        return tuple(operator.index(axis) for axis in axes)
    except TypeError:
        what, hint = f"{name} must be whole numbers.", "an int, a list of ints, or None for all axes."
        raise ArgumentTypeError(what, f"{name}={shown(axes)}", hint) from None
