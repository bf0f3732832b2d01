"""``torch.nn.utils``: in place, over parameters that hold their gradient.

For torch and Paddle tensors the gradient is the parameter's ``.grad``, as in torch. In the other frameworks parameters hold no
gradient: there the functions take the gradients, and write into NumPy arrays and variables that are not trainable.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Never, SupportsFloat, overload

from gradclip.core import registry
from gradclip.core.engine import Options, run
from gradclip.core.errors import TensorTypeError
from gradclip.core.gradients import Gradients, Holders, made, open_
from gradclip.core.groups import Shards
from gradclip.core.tracing import untraced
from gradclip.core.typed import (
    Array,
    Grads,
    Leaf,
    Limit,
    NumpyIterableT,
    NumpyLeafT,
    OwnIterableT,
    OwnLeaf,
    PaddleT,
    ParametersT,
    Several,
    Wrong,
    X,
    Y,
)
from gradclip.dialects.torch import clip_grad_norm, clip_grad_value
from gradclip.dropins.common import as_tensor

if TYPE_CHECKING:
    from gradclip.core.typed import NumpyTotal, PaddleNorm, TorchNorm

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]

_NOTHING = "`parameters` is an empty generator, no gradient clipping will occur."  #: torch's warning, to the letter


@overload
def clip_grad_norm_(
    parameters: PaddleT,
    max_norm: Limit,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> PaddleNorm: ...
@overload
def clip_grad_norm_(
    parameters: NumpyLeafT,
    max_norm: Limit,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> NumpyLeafT: ...
@overload
def clip_grad_norm_(
    parameters: tuple[Leaf[X], Leaf[Y]],
    max_norm: Limit,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> X | Y: ...
@overload
def clip_grad_norm_(
    parameters: OwnLeaf[X] | Several[Leaf[X]],
    max_norm: Limit,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> X: ...
@overload
def clip_grad_norm_(
    parameters: OwnIterableT,
    max_norm: Limit,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> Any: ...
@overload
def clip_grad_norm_(
    parameters: NumpyIterableT,
    max_norm: Limit,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> NumpyTotal: ...
@overload
def clip_grad_norm_(
    parameters: ParametersT,
    max_norm: Limit | Wrong[Never],
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> TorchNorm: ...
@untraced
def clip_grad_norm_(
    parameters: Any,
    max_norm: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
    *,
    reduce: Any = None,
    shards: Shards = None,
) -> Any:
    """Clip the gradients of parameters in place by one norm over all of them, as ``torch.nn.utils.clip_grad_norm_`` does.

    ``g_i * min(1, max_norm / (n + 1e-6)), with n = norm(norm(g_1), ..., norm(g_k)) of order p``

    Args:
        parameters: one parameter or several, in a list, tuple, dict or iterator (which is consumed once). A parameter
            without a gradient does not count; one that is listed twice counts once.
        max_norm: the limit, 0 to infinity; infinity measures only.
        norm_type: the order p: any real number, ``inf``, ``-inf``, or their names.
        error_if_nonfinite: raise if the norm is infinite or NaN, with the names of the gradients; no gradient changes.
        foreach: accepted and of no effect; gradclip always takes the fastest way.
        reduce: if other processes have some of the parameters, as in pipeline parallelism: as for :func:`gradclip.clip`.
            Not for DTensors, whose placements show their shards.
        shards: which processes hold other shards of a plain tensor, such as experts: as for :func:`gradclip.clip`.

    Returns:
        The norm before clipping: a 0-d tensor of the gradients' widest real dtype and at least float32, on the device of the
        first. For DTensors of one mesh it is a replicated DTensor, as in torch.

    Raises:
        ValueError: for a negative or NaN limit.
        RuntimeError: for a non-finite norm with ``error_if_nonfinite``, and for an unsupported dtype.
        TypeError: for an object that is not a parameter, and for gradients that are not writable.

    Warns:
        GradclipWarning: if there is nothing to clip: an exhausted iterator, in torch's words, with a note that says what to
            pass instead; or parameters without any gradient.

    Source: torch 2.13.0, ``torch/nn/utils/clip_grad.py``.

    >>> import gradclip, numpy as np
    >>> gradient = np.array([3.0, 4.0])
    >>> float(gradclip.clip_grad_norm_([gradient], max_norm=1.0))
    5.0
    >>> gradient.round(3)
    array([0.6, 0.8])
    """
    rule = clip_grad_norm(max_norm, norm_type, error_if_nonfinite)
    opened = _opened(parameters, takes_part=reduce is not None or shards is not None)
    return as_tensor(opened, run(opened, rule, Options("place", reduce=reduce, shards=shards)), "torch")


@untraced
def clip_grad_value_(parameters: Grads, clip_value: SupportsFloat | Array, foreach: bool | None = None) -> None:
    """Clip each element of the gradients in place, as ``torch.nn.utils.clip_grad_value_`` does.

    ``max(min(g, clip_value), -clip_value)``

    Args:
        parameters: as for :func:`clip_grad_norm_`.
        clip_value: the bound, 0 to infinity.
        foreach: accepted and of no effect.

    Raises:
        ValueError: for a negative or NaN bound.
        TypeError: for an object that is not a parameter, and for gradients that are not writable.

    Source: torch 2.13.0, ``torch/nn/utils/clip_grad.py``.

    >>> import gradclip, numpy as np
    >>> gradient = np.array([3.0, -0.5])
    >>> gradclip.clip_grad_value_(gradient, 1.0)
    >>> gradient
    array([ 1. , -0.5])
    """
    run(_opened(parameters), clip_grad_value(clip_value, foreach), Options("place"))


@overload
def get_total_norm(
    tensors: PaddleT,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> PaddleNorm: ...
@overload
def get_total_norm(
    tensors: NumpyLeafT,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> NumpyLeafT: ...
@overload
def get_total_norm(
    tensors: tuple[Leaf[X], Leaf[Y]],
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> X | Y: ...
@overload
def get_total_norm(
    tensors: OwnLeaf[X] | Several[Leaf[X]],
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> X: ...
@overload
def get_total_norm(
    tensors: OwnIterableT,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> Any: ...
@overload
def get_total_norm(
    tensors: NumpyIterableT,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> NumpyTotal: ...
@overload
def get_total_norm(
    tensors: ParametersT,
    norm_type: float = ...,
    error_if_nonfinite: bool = ...,
    foreach: bool | None = ...,
    *,
    reduce: object = ...,
    shards: Shards = ...,
) -> TorchNorm: ...
@untraced
def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
    *,
    reduce: Any = None,
    shards: Shards = None,
) -> Any:
    """The norm over tensors, as ``torch.nn.utils.get_total_norm`` computes it: the first half of :func:`clip_grad_norm_`.

    Args:
        tensors: one tensor or several. For parameters it is the norm of the parameters, as in torch, and not of their
            gradients.
        norm_type, error_if_nonfinite, foreach, reduce, shards: as for :func:`clip_grad_norm_`.

    Returns:
        A 0-d tensor of the widest real dtype and at least float32, on the device of the first.

    Raises:
        RuntimeError: for a non-finite norm with ``error_if_nonfinite``, and for an unsupported dtype.
        TypeError: for an object that is not a tensor.

    Source: torch 2.13.0, ``torch/nn/utils/clip_grad.py``.

    >>> import gradclip, numpy as np
    >>> float(gradclip.get_total_norm([np.array([3.0]), np.array([4.0])]))
    5.0
    """
    rule = clip_grad_norm(math.inf, norm_type, error_if_nonfinite)
    opened = _opened(tensors, "tensors", "none", takes_part=reduce is not None or shards is not None)
    norm = as_tensor(opened, run(opened, rule, Options(until="norm", reduce=reduce, shards=shards)), "torch")
    # torch's norm is never differentiable
    return norm if opened.backend is None or opened.lane.dtype else opened.backend.detach(norm)


@untraced
def clip_grads_with_norm_(
    parameters: Grads, max_norm: Limit, total_norm: SupportsFloat | Array, foreach: bool | None = None
) -> None:
    """Clip gradients in place by a known norm, as ``torch.nn.utils.clip_grads_with_norm_`` does.

    ``g_i * min(1, max_norm / (total_norm + 1e-6))``

    Args:
        parameters: as for :func:`clip_grad_norm_`.
        max_norm: the limit, 0 to infinity.
        total_norm: a 0-d tensor or a number: the result of :func:`get_total_norm`, perhaps reduced over processes.
        foreach: accepted and of no effect.

    Raises:
        ValueError: for a negative or NaN limit, and for a negative norm.
        RuntimeError: for a norm that is not 0-d.
        TypeError: for an object that is not a parameter or not a norm, and for gradients that are not writable.

    Source: torch 2.13.0, ``torch/nn/utils/clip_grad.py``.

    >>> import gradclip, numpy as np
    >>> gradient = np.array([3.0, 4.0])
    >>> gradclip.clip_grads_with_norm_([gradient], max_norm=1.0, total_norm=10.0)
    >>> gradient.round(3)
    array([0.3, 0.4])
    """
    run(_opened(parameters), clip_grad_norm(max_norm, foreach=foreach), Options("place", norm=total_norm))


def _opened(tensors: Any, name: str = "parameters", holders: Holders = "all", takes_part: bool = False) -> Gradients:
    if tensors is None:
        raise TensorTypeError(f"{name} must be a tensor or several.", f"{name}=None", "pass model.parameters().")
    opened = open_(tensors, holders=holders)
    if opened.backend is None:
        container = replace(opened.container, native_warning=_NOTHING) if holders == "all" else opened.container
        # a process with nothing to clip still takes part
        opened = made(registry.home("torch") if takes_part else None, [], [], container)
    return opened
