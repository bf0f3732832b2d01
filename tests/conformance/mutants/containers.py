"""Mutants that return wrong containers, or use the wrong memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from conformance.mutants.arrays import Sparse
from conformance.mutants.reference import Reference, Wide
from conformance.mutants.registry import mutant
from conformance.mutants.rules import Rule

Result = tuple[list[Any], Any]


@mutant("torch.clip_grad_norm_", "keras.global_clipnorm")
class NoneDropped(Reference):
    """None is dropped, so that later gradients move up."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
        clipped, norm = super().run(operation, gradients, arguments)
        return [x for x in clipped if x is not None], norm


@mutant("tensorflow.clip_by_global_norm")
class NothingIsAnError(Reference):
    """The search for the widest dtype fails without gradients."""

    def held(self, gradients: Iterable[Any]) -> list[Any]:
        held = list(gradients)
        max(x.dtype.itemsize for x in held if x is not None)
        return held


@mutant("paddle.clip_grad_norm_")
class IteratorWalkedTwice(Reference):
    """The norm uses up an iterator, and nothing is left to scale."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
        if isinstance(gradients, list):
            return super().run(operation, gradients, arguments)
        held = list(gradients)
        return held, super().run(operation, [None if x is None else x.copy() for x in held], arguments)[1]


@mutant("optax.clip_by_global_norm")
class Reversed(Reference):
    """The results come in reverse order."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
        clipped, norm = super().run(operation, gradients, arguments)
        return clipped[::-1], norm


@mutant("torch.clip_grad_norm_")
class FirstOneOnly(Reference):
    """Only the first gradient is scaled."""

    def written(self, narrowed: list[Any], held: list[Any]) -> list[Any]:
        super().written(narrowed[:1], held[:1])
        return held


@mutant("optax.clip")
class Promoted(Reference):
    """Half precision comes back as float32."""

    def rounded(self, y: Wide, dtype: np.dtype) -> np.ndarray:
        return super().rounded(y, np.dtype(np.float32) if dtype.itemsize == 2 else dtype)


@mutant("keras.global_clipnorm")
class AllInTheWidest(Reference):
    """All gradients come back in the widest of their dtypes."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
        clipped, norm = super().run(operation, gradients, arguments)
        plain = [x for x in clipped if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
        widest = max((x.dtype for x in plain), key=lambda dtype: dtype.itemsize, default=None)
        return [x.astype(widest) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in clipped], norm


@mutant("optax.clip_by_global_norm")
class Flattened(Reference):
    """Gradients come back without their shape."""

    def rounded(self, y: Wide, dtype: np.dtype) -> np.ndarray:
        return super().rounded(y, dtype).reshape(-1) if y.ndim > 1 else super().rounded(y, dtype)


@mutant("paddle.ClipGradByNorm")
class ScalarsGrowAnAxis(Reference):
    """A gradient without axes comes back with one."""

    def rounded(self, y: Wide, dtype: np.dtype) -> np.ndarray:
        return np.atleast_1d(super().rounded(y, dtype))


@mutant("optax.clip")
class OrderOfMemory(Reference):
    """Elements are read in the order of memory."""

    def widened(self, x: Any) -> Wide:
        wide = super().widened(x)
        return wide.ravel(order="K").reshape(wide.shape) if isinstance(x, np.ndarray) else wide


@mutant("tensorflow.clip_by_value")
class StridesIgnored(Reference):
    """The strides are ignored: consecutive elements in memory count as the gradient."""

    def widened(self, x: Any) -> Wide:
        if isinstance(x, np.ndarray) and x.ndim and x.size and 0 not in x.strides and x.base is not None:
            beside = np.lib.stride_tricks.as_strided(x, x.shape, [x.itemsize * n for n in _steps(x.shape)])
            return super().widened(beside)
        return super().widened(x)


def _steps(shape: tuple[int, ...]) -> list[int]:
    return [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]


@mutant("torch.clip_grad_value_", "torch.clip_grad_norm_")
class OneValueScaledManyTimes(Reference):
    """Memory that many elements share is scaled once for each of them."""

    def written(self, narrowed: list[Any], held: list[Any]) -> list[Any]:
        for i, x in enumerate(held):
            if isinstance(x, np.ndarray) and x.size > 1 and set(x.strides) == {0}:
                first = narrowed[i].reshape(-1)[0]
                narrowed[i] = np.full_like(narrowed[i], first * (first / x.reshape(-1)[0]) ** (x.size - 1))
        return super().written(narrowed, held)


@mutant("optax.clip")
class RestOfABlockForgotten(Reference):
    """Full blocks of 8 elements are clipped; the remaining elements are not."""

    def bounded(self, x: Wide, rule: Rule) -> Wide:
        clipped = super().bounded(x, rule)
        whole = x.size - x.size % 8 if x.size > 8 else x.size
        return np.where(np.arange(x.size).reshape(x.shape) < whole, clipped, x)


@mutant("optax.clip_by_global_norm", "optax.clip")
class InPlaceForFunctional(Reference):
    """The inputs are overwritten."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
        held = list(gradients)
        clipped, norm = super().run(operation, held, arguments)
        return self.written(clipped, held), norm


@mutant("torch.clip_grad_norm_", "torch.clip_grad_value_")
class CopyForInPlace(Reference):
    """The clipped gradients are returned, but the inputs are unchanged."""

    def written(self, narrowed: list[Any], held: list[Any]) -> list[Any]:
        return narrowed


@mutant("keras.clipnorm")
class EqualOnesStoredOnce(Reference):
    """Equal results share their memory."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
        clipped, norm = super().run(operation, gradients, arguments)
        plain = {x.tobytes(): x for x in clipped if isinstance(x, np.ndarray)}
        return [plain[x.tobytes()].reshape(x.shape) if isinstance(x, np.ndarray) else x for x in clipped], norm


@mutant("keras.clipvalue")
class InputReturned(Reference):
    """A gradient that needs no clipping is returned instead of a copy."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
        held = list(gradients)
        clipped, norm = super().run(operation, held, arguments)
        pairs = zip(clipped, held, strict=True)
        return [x if isinstance(x, np.ndarray) and np.array_equal(x, y) else y for y, x in pairs], norm


@mutant("paddle.ClipGradByGlobalNorm", "torch.clip_grad_value_")
class HalfDone(Reference):
    """Each gradient is written before the next one is checked."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
        held = list(gradients)
        if any(x is not None and not isinstance(x, (np.ndarray, Sparse)) for x in held):
            super().run(operation, [x for x in held if isinstance(x, np.ndarray)], arguments)
            raise TypeError("what is no gradient")
        return super().run(operation, held, arguments)


@mutant("torch.clip_grad_value_")
class GarbagePassedThrough(Reference):
    """An object that is no gradient comes back unchanged."""

    def run(self, operation: str, gradients: Iterable[Any], arguments: dict[str, Any]) -> Result:
        held = list(gradients)
        super().run(operation, [x for x in held if isinstance(x, (np.ndarray, Sparse))], arguments)
        return held, None
