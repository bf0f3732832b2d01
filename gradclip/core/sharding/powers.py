"""``reduce=`` as a function of the caller: it gets sums of powers and reduces them over processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradclip.core.backend import Backend, Tensor, number
from gradclip.core.dtypes import LARGEST
from gradclip.core.errors import ArgumentTypeError
from gradclip.core.gradients import Gradients
from gradclip.core.measure import nothing

__all__ = ["called"]


def called(
    grads: Gradients, backend: Backend, reduce: Callable[[Tensor], Any], found: list[Any], order: float, shape: tuple[int, ...]
) -> list[Any]:
    """Norms of one order from the sums of powers that the caller's own function has reduced."""
    wide, on_host = backend.distributed.widest(), all(isinstance(n, float) for n in found)
    if on_host:
        like = next((x for x in (*grads.present, *grads.params) if x is not None), None)
        powers = [_power(n, order, wide) for n in found]
        value = backend.asarray(powers if shape else powers[0], wide, like)
    else:
        like = next(n for n in found if not isinstance(n, float))
        tensors = [backend.asarray(n, wide, like) if isinstance(n, float) else backend.cast(n, wide) for n in found]
        value = backend.stack(tensors, wide) if shape else tensors[0]
        value = _powers(backend, value, order, wide)
    returned = reduce(value)
    value = value if returned is None else returned  # torch.distributed.all_reduce writes in place
    is_number = isinstance(value, (int, float)) and not shape
    if not is_number and not (backend.is_tensor(value) and backend.shape(value) == shape):
        what = f"reduce must return {f'a tensor of {shape[0]} elements' if shape else 'a 0-d tensor'}."
        hint = "it gets a 0-d tensor, or for several groups a vector, and returns the sum (for an infinite order the maximum),"
        hint += " or writes it in place."
        raise ArgumentTypeError(what, f"{value!r}", hint)
    each = [value[i, ...] for i in range(shape[0])] if shape else [value]
    if on_host:
        return [_root(float(x) if is_number else number(backend, x), order, wide) for x in each]
    each = [backend.asarray(value, wide, like)] if is_number else each
    return [_roots(backend, x, order, wide) for x in each]


# A sum of powers of a negative order is 0 without gradients. So the power of infinite gradients is the least normal number, and
# any sum near it stands for infinity. Of the order -inf the smallest norm is infinite without gradients, and infinite gradients
# count as the largest number.

_LEAST = {"float32": 2.0**-126, "float64": 2.0**-1022}
_NEAR = 2.0**10


def _power(n: float, order: float, wide: str) -> float:
    """The number that a process gives to the caller's function for its norm."""
    if order == -math.inf:
        return math.inf if n < 0 else min(n, LARGEST[wide])
    if order < 0:
        return 0.0 if n < 0 else max(_raised(n, order), _LEAST[wide])
    return n if order == math.inf else _raised(n, order)


def _root(value: float, order: float, wide: str) -> float:
    """The norm from the number that the caller's function returned."""
    if order == -math.inf:
        return nothing(order) if value == math.inf else math.inf if value >= LARGEST[wide] else value
    if order < 0 and value < _LEAST[wide] * _NEAR:
        return math.inf if value > 0 else nothing(order)
    return value if order == math.inf else _raised(value, 1 / order)


def _powers(backend: Backend, n: Tensor, order: float, wide: str) -> Tensor:
    """The same as :func:`_power`, for tensors."""
    if order == -math.inf:
        return backend.where(n < 0, math.inf, backend.clip(n, None, LARGEST[wide]))
    if order < 0:
        power = backend.clip(backend.power(backend.where(n < 0, 1.0, n), order), _LEAST[wide], None)
        return backend.where(n < 0, 0.0, power)
    return n if order in (1.0, math.inf) else backend.power(n, order)


def _roots(backend: Backend, value: Tensor, order: float, wide: str) -> Tensor:
    """The same as :func:`_root`, for tensors."""
    if order == -math.inf:
        large = backend.where(value >= backend.constant(LARGEST[wide], value), math.inf, value)
        return backend.where(value == math.inf, nothing(order), large)
    if order < 0:
        is_near = value < _LEAST[wide] * _NEAR
        root = backend.where(is_near, math.inf, backend.power(backend.where(is_near, 1.0, value), 1 / order))
        return backend.where(value <= 0, nothing(order), root)
    return value if order in (1.0, math.inf) else backend.power(value, 1 / order)


def _raised(value: float, exponent: float) -> float:
    if value == 0 and exponent < 0:
        return math.inf
    try:
        return float(value**exponent)
    except OverflowError:
        return math.inf
