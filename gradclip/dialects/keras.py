"""Keras: the three constructor arguments of its optimizers.

Source: keras 3.15.1, ``keras/src/optimizers/base_optimizer.py``. Each is off at 0, as in Keras, where ``if self.clipnorm``
tests it. tf.keras of TensorFlow 2 means the same; standalone Keras up to 2.3.1 called the *global* norm ``clipnorm``.
"""

from __future__ import annotations

import math
from typing import Any, SupportsFloat

from gradclip.core.rule import GLOBAL, TENSOR, EachRule, Rule, number_or_tensor
from gradclip.core.tracing import untraced
from gradclip.core.typed import Array, Limit
from gradclip.dialects.torch import symmetric

__all__ = ["clipnorm", "clipvalue", "global_clipnorm"]


@untraced
def clipnorm(clipnorm: Limit) -> EachRule:
    """Each gradient by its own Euclidean norm.

    ``g * clipnorm / max(norm(g), clipnorm)``

    Args:
        clipnorm: the limit; 0 and infinity measure only.

    Raises:
        ValueError: for a negative or NaN limit.

    Source: keras 3.15.1, ``keras/src/optimizers/base_optimizer.py``, ``BaseOptimizer._clip_by_norm``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import keras
    >>> gradclip.clip([np.array([3.0, 4.0]), np.array([0.5])], keras.clipnorm(1.0)).grads
    [array([0.6, 0.8]), array([0.5])]
    """
    limit = _off_at_zero(number_or_tensor("clipnorm", clipnorm, follows=True))
    return EachRule(name="keras.clipnorm", scope=TENSOR, limit=limit, limit_name="clipnorm")


@untraced
def global_clipnorm(global_clipnorm: Limit) -> Rule:
    """One Euclidean norm over all gradients; an infinite norm makes every gradient NaN.

    ``g_i * global_clipnorm / max(n, global_clipnorm), with n = norm(g_1, ..., g_k)``

    Args:
        global_clipnorm: the limit; 0 and infinity measure only.

    Raises:
        ValueError: for a negative or NaN limit.

    Source: keras 3.15.1, ``keras/src/optimizers/base_optimizer.py``, ``clip_by_global_norm``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import keras
    >>> gradclip.clip([np.array([3.0]), np.array([4.0])], keras.global_clipnorm(1.0)).grads
    [array([0.6]), array([0.8])]
    """
    limit = _off_at_zero(number_or_tensor("global_clipnorm", global_clipnorm, follows=True))
    return Rule(name="keras.global_clipnorm", scope=GLOBAL, limit=limit, limit_name="global_clipnorm", nan_if_infinite=True)


@untraced
def clipvalue(clipvalue: SupportsFloat | Array) -> EachRule:
    """Each element between ``-clipvalue`` and ``clipvalue``; NaN stays NaN.

    ``max(min(g, clipvalue), -clipvalue)``

    Args:
        clipvalue: the bound; 0 and infinity change nothing.

    Raises:
        ValueError: for a negative or NaN bound.

    Source: keras 3.15.1, ``keras/src/optimizers/base_optimizer.py``, ``BaseOptimizer._clip_gradients``.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import keras
    >>> gradclip.clip(np.array([3.0, -0.5]), keras.clipvalue(1.0)).grads
    array([ 1. , -0.5])
    """
    return symmetric("keras.clipvalue", "clipvalue", _off_at_zero(number_or_tensor("clipvalue", clipvalue)))


def _off_at_zero(limit: Any) -> Any:
    return math.inf if isinstance(limit, float) and limit == 0 else limit
