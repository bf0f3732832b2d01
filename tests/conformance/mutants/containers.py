"""Mutants that return wrong containers, or use the wrong memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from conformance.mutants.arrays import Sparse
from conformance.mutants.reference import Reference, Wide
from conformance.mutants.registry import Right, mutant, wrong
from conformance.mutants.rules import Rule

Result = tuple[list[Any], Any]


@wrong("run", "torch.clip_grad_norm_", "keras.global_clipnorm")
def none_dropped(right: Right, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
    """None is dropped, so that later gradients move up."""
    clipped, norm = right(operation, gradients, arguments)
    return [x for x in clipped if x is not None], norm


@wrong("grads", "tensorflow.clip_by_global_norm")
def nothing_is_an_error(right: Right, gradients: Iterable[Any]) -> list[Any]:
    """The search for the widest dtype fails without gradients."""
    grads = list(gradients)
    max(x.dtype.itemsize for x in grads if x is not None)
    return grads


@wrong("run", "paddle.clip_grad_norm_")
def iterator_walked_twice(right: Right, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
    """The norm uses up an iterator, and nothing is left to scale."""
    if isinstance(gradients, list):
        return right(operation, gradients, arguments)
    grads = list(gradients)
    return grads, right(operation, [None if x is None else x.copy() for x in grads], arguments)[1]


@wrong("run", "optax.clip_by_global_norm")
def in_reverse_order(right: Right, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
    """The results come in reverse order."""
    clipped, norm = right(operation, gradients, arguments)
    return clipped[::-1], norm


@wrong("written", "torch.clip_grad_norm_")
def first_one_only(right: Right, narrowed: list[Any], grads: list[Any]) -> list[Any]:
    """Only the first gradient is scaled."""
    right(narrowed[:1], grads[:1])
    return grads


@wrong("rounded", "optax.clip")
def promoted(right: Right, y: Wide, dtype: np.dtype) -> np.ndarray:
    """Half precision comes back as float32."""
    return right(y, np.dtype(np.float32) if dtype.itemsize == 2 else dtype)


@wrong("run", "keras.global_clipnorm")
def all_in_the_widest(right: Right, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
    """All gradients come back in the widest of their dtypes."""
    clipped, norm = right(operation, gradients, arguments)
    plain = [x for x in clipped if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    widest = max((x.dtype for x in plain), key=lambda dtype: dtype.itemsize, default=None)
    return [x.astype(widest) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in clipped], norm


@wrong("rounded", "optax.clip_by_global_norm")
def flattened(right: Right, y: Wide, dtype: np.dtype) -> np.ndarray:
    """Gradients come back without their shape."""
    return right(y, dtype).reshape(-1) if y.ndim > 1 else right(y, dtype)


@wrong("rounded", "paddle.ClipGradByNorm")
def scalars_grow_an_axis(right: Right, y: Wide, dtype: np.dtype) -> np.ndarray:
    """A gradient without axes comes back with one."""
    return np.atleast_1d(right(y, dtype))


@wrong("widened", "optax.clip")
def order_of_memory(right: Right, x: Any) -> Wide:
    """Elements are read in the order of memory."""
    wide = right(x)
    return wide.ravel(order="K").reshape(wide.shape) if isinstance(x, np.ndarray) else wide


@wrong("widened", "tensorflow.clip_by_value")
def strides_ignored(right: Right, x: Any) -> Wide:
    """The strides are ignored: consecutive elements in memory count as the gradient."""
    if isinstance(x, np.ndarray) and x.ndim and x.size and 0 not in x.strides and x.base is not None:
        beside = np.lib.stride_tricks.as_strided(x, x.shape, [x.itemsize * n for n in _steps(x.shape)])
        return right(beside)
    return right(x)


def _steps(shape: tuple[int, ...]) -> list[int]:
    return [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]


@wrong("written", "torch.clip_grad_value_", "torch.clip_grad_norm_")
def one_value_scaled_many_times(right: Right, narrowed: list[Any], grads: list[Any]) -> list[Any]:
    """Memory that many elements share is scaled once for each of them."""
    for i, x in enumerate(grads):
        if isinstance(x, np.ndarray) and x.size > 1 and set(x.strides) == {0}:
            first = narrowed[i].reshape(-1)[0]
            narrowed[i] = np.full_like(narrowed[i], first * (first / x.reshape(-1)[0]) ** (x.size - 1))
    return right(narrowed, grads)


@wrong("bounded", "optax.clip")
def rest_of_a_block_forgotten(right: Right, x: Wide, rule: Rule) -> Wide:
    """Full blocks of 8 elements are clipped; the remaining elements are not."""
    clipped = right(x, rule)
    whole = x.size - x.size % 8 if x.size > 8 else x.size
    return np.where(np.arange(x.size).reshape(x.shape) < whole, clipped, x)


@mutant("optax.clip_by_global_norm", "optax.clip")
class InPlaceForFunctional(Reference):
    """The inputs are overwritten."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
        grads = list(gradients)
        clipped, norm = super().run(operation, grads, arguments)
        return self.written(clipped, grads), norm


@wrong("written", "torch.clip_grad_norm_", "torch.clip_grad_value_")
def copy_for_in_place(right: Right, narrowed: list[Any], grads: list[Any]) -> list[Any]:
    """The clipped gradients are returned, but the inputs are unchanged."""
    return narrowed


@wrong("run", "keras.clipnorm")
def equal_ones_stored_once(right: Right, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
    """Equal results share their memory."""
    clipped, norm = right(operation, gradients, arguments)
    plain = {x.tobytes(): x for x in clipped if isinstance(x, np.ndarray)}
    return [plain[x.tobytes()].reshape(x.shape) if isinstance(x, np.ndarray) else x for x in clipped], norm


@wrong("run", "keras.clipvalue")
def input_returned(right: Right, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
    """A gradient that needs no clipping is returned instead of a copy."""
    grads = list(gradients)
    clipped, norm = right(operation, grads, arguments)
    pairs = zip(clipped, grads, strict=True)
    return [x if isinstance(x, np.ndarray) and np.array_equal(x, y) else y for y, x in pairs], norm


@wrong("run", "paddle.ClipGradByGlobalNorm", "torch.clip_grad_value_")
def half_done(right: Right, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
    """Each gradient is written before the next one is checked."""
    grads = list(gradients)
    if any(x is not None and not isinstance(x, (np.ndarray, Sparse)) for x in grads):
        right(operation, [x for x in grads if isinstance(x, np.ndarray)], arguments)
        raise TypeError("what is no gradient")
    return right(operation, grads, arguments)


@wrong("run", "torch.clip_grad_value_")
def garbage_passed_through(right: Right, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
    """An object that is no gradient comes back unchanged."""
    grads = list(gradients)
    right(operation, [x for x in grads if isinstance(x, (np.ndarray, Sparse))], arguments)
    return grads, None
