"""``tf.clip_by_*``: functions that return new tensors, on any framework's tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, Never, TypeVar, overload

from gradclip.core.containers import DEEPEST, nested_too_deep
from gradclip.core.dtypes import COMPLEX, INTEGERS, WIDE
from gradclip.core.engine import UNKNOWN, Options, run
from gradclip.core.errors import GradclipError, TensorTypeError
from gradclip.core.gradients import Gradients, open_, refusal
from gradclip.core.registry import find, home, widened
from gradclip.core.rule import Rule
from gradclip.core.tracing import untraced
from gradclip.core.typed import (
    Array,
    ArrayT,
    JaxT,
    Leaf,
    Limit,
    Nest,
    NumpyT,
    PaddleLeaf,
    PaddleT,
    Several,
    TorchT,
    UnclearT,
    Wrong,
    X,
    Y,
)
from gradclip.dialects import tensorflow as dialect
from gradclip.dropins.common import as_tensor

if TYPE_CHECKING:
    from gradclip.core.typed import JaxNorm, NumpyTotal, PaddleNorm, TorchNorm

__all__ = ["clip_by_global_norm", "clip_by_norm", "clip_by_value", "global_norm"]

Numbers = float | Sequence["Numbers"]
Limits = Limit | Sequence[Numbers]
MapT = TypeVar("MapT", bound=Mapping[Any, Nest[Array]] | Wrong[Never])
OtherT = TypeVar("OtherT", bound=Array)


@overload
def clip_by_norm(t: ArrayT, clip_norm: Limits, axes: object = ..., name: str | None = ...) -> ArrayT: ...
@overload
def clip_by_norm(t: Numbers, clip_norm: Limits, axes: object = ..., name: str | None = ...) -> Any: ...
@untraced
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """Clip a tensor by its own Euclidean norm, as ``tf.clip_by_norm`` does.

    ``t * clip_norm / max(norm(t), clip_norm)``

    Args:
        t: one tensor, dense or sparse.
        clip_norm: the limit; a negative one counts as 0, infinity clips nothing. A tensor, or a list, may have any shape that
            broadcasts against the norms with their reduced axes kept.
        axes: the axes of the norm: an int, several, None for all, an empty list for each element separately.
        name: accepted and of no effect.

    Returns:
        A tensor of the same framework, shape and dtype.

    Raises:
        ValueError: for a NaN limit, and for axes that are out of range or named twice (for TensorFlow's tensors the exception
            is also a ``tf.errors.InvalidArgumentError``).
        TypeError: for an object that is not a tensor, and for a dtype that is not floating or complex.

    Source: tensorflow 2.21.0, ``tensorflow/python/ops/clip_ops.py``.

    >>> import gradclip, numpy as np
    >>> gradclip.clip_by_norm(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0, axes=1)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    opened = _one_tensor(t, "clip_by_norm")
    limit = _limit(opened, clip_norm)
    return run(opened, _rule(opened, dialect.clip_by_norm, limit, axes), Options()).grads


@overload
def clip_by_global_norm(
    t_list: Sequence[UnclearT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[list[UnclearT], Any]: ...
@overload
def clip_by_global_norm(
    t_list: Sequence[PaddleT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[list[PaddleT], PaddleNorm]: ...
@overload
def clip_by_global_norm(
    t_list: dict[X, PaddleT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[dict[X, PaddleT], PaddleNorm]: ...
@overload
def clip_by_global_norm(
    t_list: tuple[ArrayT, OtherT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[list[ArrayT | OtherT], ArrayT | OtherT]: ...
@overload
def clip_by_global_norm(
    t_list: Sequence[ArrayT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[list[ArrayT], ArrayT]: ...
@overload
def clip_by_global_norm(
    t_list: list[ArrayT | None], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[list[ArrayT | None], ArrayT]: ...
@overload
def clip_by_global_norm(
    t_list: dict[X, ArrayT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[dict[X, ArrayT], ArrayT]: ...
@overload
def clip_by_global_norm(
    t_list: Iterator[ArrayT] | ValuesView[ArrayT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[list[ArrayT], ArrayT]: ...
@overload
def clip_by_global_norm(
    t_list: Iterator[tuple[str, ArrayT]] | ItemsView[str, ArrayT],
    clip_norm: Limit,
    use_norm: object = ...,
    name: str | None = ...,
) -> tuple[dict[str, ArrayT], ArrayT]: ...
@overload
def clip_by_global_norm(
    t_list: dict[X, NumpyT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[dict[X, NumpyT], NumpyTotal]: ...
@overload
def clip_by_global_norm(
    t_list: Sequence[NumpyT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[list[NumpyT], NumpyTotal]: ...
@overload
def clip_by_global_norm(
    t_list: dict[X, TorchT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[dict[X, TorchT], TorchNorm]: ...
@overload
def clip_by_global_norm(
    t_list: Sequence[TorchT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[list[TorchT], TorchNorm]: ...
@overload
def clip_by_global_norm(
    t_list: dict[X, JaxT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[dict[X, JaxT], JaxNorm]: ...
@overload
def clip_by_global_norm(
    t_list: Sequence[JaxT], clip_norm: Limit, use_norm: object = ..., name: str | None = ...
) -> tuple[list[JaxT], JaxNorm]: ...
@overload
def clip_by_global_norm(
    t_list: MapT, clip_norm: Limit | Wrong[Never], use_norm: object = ..., name: str | None = ...
) -> tuple[MapT, Any]: ...
@untraced
def clip_by_global_norm(t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None) -> tuple[Any, Any]:
    """Clip several tensors by one Euclidean norm over all of them, as ``tf.clip_by_global_norm`` does.

    ``t_i * clip_norm / max(n, clip_norm), with n = norm(t_1, ..., t_k)``

    Args:
        t_list: a list or tuple of tensors and None, or any other container that :func:`gradclip.clip` takes.
        clip_norm: the limit, 0 to infinity; infinity measures only.
        use_norm: the norm, if it is known: a number or a 0-d tensor.
        name: accepted and of no effect.

    Returns:
        A list of the clipped tensors, with None where there was None; for a dict or another nest a container like it. The
        norm is ``use_norm`` itself (a tensor in at least float32), or a 0-d tensor of the widest real dtype and at least
        float32. An infinite norm makes every element NaN.

    Raises:
        ValueError: for a negative or NaN limit.
        TypeError: if ``t_list`` is not a container, or ``use_norm`` not a number.

    Source: tensorflow 2.21.0, ``tensorflow/python/ops/clip_ops.py``.

    >>> import gradclip, numpy as np
    >>> gradclip.clip_by_global_norm([np.array([3.0]), None, np.array([4.0])], 1.0)
    ([array([0.6]), None, array([0.8])], array(5.))
    """
    opened = _tensors(t_list, "clip_by_global_norm")
    limit = _limit(opened, clip_norm)
    rule = _rule(opened, dialect.clip_by_global_norm, limit)
    result = run(opened, rule, Options(norm=UNKNOWN if use_norm is None else use_norm))
    clipped = list(result.grads) if isinstance(t_list, Sequence) else result.grads
    return clipped, as_tensor(opened, result, "tensorflow") if use_norm is None else widened(use_norm)


@overload
def global_norm(t_list: Several[PaddleLeaf[Any]], name: str | None = ...) -> PaddleNorm: ...
@overload
def global_norm(t_list: tuple[Leaf[X], Leaf[Y]], name: str | None = ...) -> X | Y: ...
@overload
def global_norm(t_list: Several[Leaf[X]] | Wrong[Never], name: str | None = ...) -> X: ...
@untraced
def global_norm(t_list: Any, name: str | None = None) -> Any:
    """The Euclidean norm over several tensors, as ``tf.linalg.global_norm`` computes it.

    ``norm(t_1, ..., t_k)``

    Args:
        t_list: a list or tuple of tensors and None, or any other container that :func:`gradclip.clip` takes.
        name: accepted and of no effect.

    Returns:
        A 0-d tensor of the widest real dtype and at least float32.

    Raises:
        TypeError: if ``t_list`` is not a container.

    Source: tensorflow 2.21.0, ``tensorflow/python/ops/clip_ops.py``.

    >>> import gradclip, numpy as np
    >>> float(gradclip.global_norm([np.array([3.0]), None, np.array([4.0])]))
    5.0
    """
    opened = _tensors(t_list, "global_norm")
    return as_tensor(opened, run(opened, dialect.clip_by_global_norm(math.inf), Options(until="norm")), "tensorflow")


@overload
def clip_by_value(t: ArrayT, clip_value_min: Limits, clip_value_max: Limits, name: str | None = ...) -> ArrayT: ...
@overload
def clip_by_value(t: Numbers, clip_value_min: Limits, clip_value_max: Limits, name: str | None = ...) -> Any: ...
@untraced
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """Clip each element between two bounds, as ``tf.clip_by_value`` does.

    ``max(min(t, clip_value_max), clip_value_min)``

    Args:
        t: one tensor, dense or sparse; also of integers if the bounds are whole numbers. Of a sparse one only the stored rows
            are clipped: the others stay 0, whatever the bounds.
        clip_value_min, clip_value_max: numbers, or tensors or lists that broadcast to the shape of ``t``, or to that of its
            stored rows.
        name: accepted and of no effect.

    Returns:
        A tensor of the same framework, shape and dtype. NaN stays NaN; the lower bound wins if the bounds cross.

    Raises:
        ValueError: for a NaN bound, and for a bound whose shape does not fit.
        TypeError: for an object that is not a tensor.

    Source: tensorflow 2.21.0, ``tensorflow/python/ops/clip_ops.py``.

    >>> import gradclip, numpy as np
    >>> gradclip.clip_by_value(np.array([3.0, -4.0]), -1.0, 2.0)
    array([ 2., -1.])
    """
    opened = _one_tensor(t, "clip_by_value")
    lower, upper = _limit(opened, clip_value_min), _limit(opened, clip_value_max)
    return run(opened, _rule(opened, dialect.clip_by_value, lower, upper), Options()).grads


def _limit(opened: Gradients, limit: Any) -> Any:
    """Nested lists of numbers as a tensor, as in TensorFlow; any other limit unchanged."""
    if not isinstance(limit, (list, tuple)) or not _is_numbers(limit):
        return limit
    like = next((x for x in opened.leaves if x is not None), None)
    if opened.backend is None or like is None:
        return _tensor(limit)
    dtype = opened.backend.dtype(like)
    if dtype in INTEGERS and _are_whole(limit):
        return opened.backend.asarray(_within(limit, *INTEGERS[dtype]), dtype, like)
    return opened.backend.asarray(limit, COMPLEX.get(dtype, WIDE.get(dtype, "float32")), like)


def _within(numbers: Any, least: int, most: int) -> Any:
    if isinstance(numbers, (list, tuple)):
        bounded = [_within(number, least, most) for number in numbers]
        return tuple(bounded) if isinstance(numbers, tuple) else bounded
    return min(max(numbers, least), most)


def _rule(opened: Gradients, make: Callable[..., Rule], *limits: Any) -> Rule:
    """A rule, with errors of the gradients' framework."""
    try:
        return make(*limits)
    except GradclipError as error:
        raise (error if opened.backend is None else opened.backend.error(error)) from None


def _one_tensor(t: Any, function: str) -> Gradients:
    if find(t) is None:
        if not _is_numbers(t):
            if error := refusal(t):
                raise error
            hint = f"for several: [gradclip.{function}(g, ...) for g in grads]."
            raise TensorTypeError(f"{function} takes one tensor.", f"t of type {type(t).__name__}", hint)
        t = _tensor(t)
    return _no_parameters(open_(t, holders="none"), function)


def _tensors(t_list: Any, function: str) -> Gradients:
    if t_list is None or isinstance(t_list, (str, bytes)) or find(t_list) is not None:
        hint = f"for one tensor: gradclip.{function}([t], ...)."
        raise TensorTypeError("t_list must be a list of tensors.", f"t_list of type {type(t_list).__name__}", hint)
    if not isinstance(t_list, Sequence):
        return _no_parameters(open_(t_list, holders="none"), function)
    tensors = list(t_list)
    # an empty list is a container without tensors
    numbers = [i for i, t in enumerate(tensors) if _is_numbers(t) and not (isinstance(t, (list, tuple)) and not t)]
    # NumPy's scalars are numbers too, and stay NumPy's unless there are tensors of another framework
    are_mixed = bool(numbers) and len(set(map(find, tensors)) - {None}) > 1
    for i in numbers:
        if are_mixed or find(tensors[i]) is None:
            tensors[i] = _tensor(tensors[i])
    return _no_parameters(open_(tensors, holders="none"), function)


def _no_parameters(opened: Gradients, function: str) -> Gradients:
    backend = opened.backend
    if backend is not None and any(map(backend.containers.is_param, opened.present)):
        what, hint = f"{function} takes gradients, not parameters.", "pass [p.grad for p in parameters]."
        raise TensorTypeError(what, "parameters", hint)
    return opened


def _is_numbers(t: Any, depth: int = 0) -> bool:
    """Whether ``t`` is a number or nested lists of numbers, which TensorFlow treats as a tensor."""
    if isinstance(t, (list, tuple)):
        if depth > DEEPEST:
            raise nested_too_deep(t)
        return all(_is_numbers(item, depth + 1) for item in t)
    return isinstance(t, (int, float))


def _tensor(numbers: Any) -> Any:
    backend = home("tensorflow") or home("numpy")
    if backend is None:
        raise TensorTypeError("Numbers need a framework to become a tensor.", f"{numbers!r}", "import one first.")
    if not _are_whole(numbers):
        return backend.asarray(numbers, "float32", None)
    return backend.asarray(numbers, "int32" if _within(numbers, *INTEGERS["int32"]) == numbers else "int64", None)


def _are_whole(numbers: Any) -> bool:
    return all(map(_are_whole, numbers)) and bool(numbers) if isinstance(numbers, (list, tuple)) else isinstance(numbers, int)
