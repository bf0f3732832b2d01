r"""Keras: the three constructor arguments of its optimizers.

Source: keras 3.15.1, ``keras/src/optimizers/base_optimizer.py``. Each is off at 0, as in Keras, where ``if self.clipnorm``
tests it. tf.keras of TensorFlow 2 means the same; standalone Keras up to 2.3.1 called the *global* norm ``clipnorm``.
"""

from __future__ import annotations

import math
from typing import Any

from gradclip.dialects.torch import symmetric
from gradclip.rule import Rule, Scope, number_or_tensor
from gradclip.tracing import as_it_is

__all__ = ["clipnorm", "clipvalue", "global_clipnorm"]


@as_it_is
def clipnorm(clipnorm: Any) -> Rule:
    r"""Each gradient by its own Euclidean norm.

    .. math:: g \cdot \frac{\text{clipnorm}}{\max(\lVert g \rVert_2, \text{clipnorm})}

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
    limit = _off_at_zero(number_or_tensor("clipnorm", clipnorm))
    return Rule(name="keras.clipnorm", scope=Scope.TENSOR, limit=limit, limit_name="clipnorm")


@as_it_is
def global_clipnorm(global_clipnorm: Any) -> Rule:
    r"""One Euclidean norm over all gradients; an infinite norm makes every gradient NaN.

    .. math:: g_i \cdot \frac{\text{global\_clipnorm}}{\max(n, \text{global\_clipnorm})}, \qquad
              n = \sqrt{\sum_i \lVert g_i \rVert_2^2}

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
    limit = _off_at_zero(number_or_tensor("global_clipnorm", global_clipnorm))
    return Rule(
        name="keras.global_clipnorm", scope=Scope.GLOBAL, limit=limit, limit_name="global_clipnorm", nan_if_infinite=True
    )


@as_it_is
def clipvalue(clipvalue: Any) -> Rule:
    r"""Each element between ``-clipvalue`` and ``clipvalue``; NaN stays NaN.

    .. math:: g \mapsto \max(\min(g, \text{clipvalue}), -\text{clipvalue})

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
