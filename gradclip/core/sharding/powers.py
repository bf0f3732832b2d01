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
    known = (n for n in found if not isinstance(n, float))
    like = next((x for x in (*known, *grads.present, *grads.params) if x is not None), None)
    tensors = [backend.asarray(n, wide, like) if isinstance(n, float) else backend.cast(n, wide) for n in found]
    value = _powers(backend, backend.stack(tensors, wide) if shape else tensors[0], order, wide)
    returned = reduce(value)
    value = value if returned is None else returned  # torch.distributed.all_reduce writes in place
    is_number = isinstance(value, (int, float)) and not shape
    if not is_number and not (backend.is_tensor(value) and backend.shape(value) == shape):
        what = f"reduce must return {f'a tensor of {shape[0]} elements' if shape else 'a 0-d tensor'}."
        hint = "it gets a 0-d tensor, or for several groups a vector, and returns the sum (for an infinite order the maximum),"
        hint += " or writes it in place."
        raise ArgumentTypeError(what, f"{value!r}", hint)
    each = [value[i, ...] for i in range(shape[0])] if shape else [backend.asarray(value, wide, like) if is_number else value]
    norms = [_roots(backend, x, order, wide) for x in each]
    return [number(backend, n) for n in norms] if on_host else norms


# A sum of powers of a negative order is 0 without gradients. So the power of infinite gradients is the least normal number, and
# any sum near it stands for infinity. Of the order -inf the smallest norm is infinite without gradients, and infinite gradients
# count as the largest number.

_LEAST = {"float32": 2.0**-126, "float64": 2.0**-1022}
_NEAR = 2.0**10


def _powers(backend: Backend, n: Tensor, order: float, wide: str) -> Tensor:
    """What a process gives to the caller's function for its norm."""
    if order == -math.inf:
        return backend.where(n < 0, math.inf, backend.clip(n, None, LARGEST[wide]))
    if order < 0:
        power = backend.clip(backend.power(backend.where(n < 0, 1.0, n), order), _LEAST[wide], None)
        return backend.where(n < 0, 0.0, power)
    return n if order in (1.0, math.inf) else backend.power(n, order)


def _roots(backend: Backend, value: Tensor, order: float, wide: str) -> Tensor:
    """The norm from what the caller's function returned."""
    if order == -math.inf:
        large = backend.where(value >= backend.constant(LARGEST[wide], value), math.inf, value)
        return backend.where(value == math.inf, nothing(order), large)
    if order < 0:
        is_near = value < _LEAST[wide] * _NEAR
        root = backend.where(is_near, math.inf, backend.power(backend.where(is_near, 1.0, value), 1 / order))
        return backend.where(value <= 0, nothing(order), root)
    return value if order in (1.0, math.inf) else backend.power(value, 1 / order)
