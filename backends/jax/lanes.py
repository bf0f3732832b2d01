"""The lanes of JAX: its own reference, compiled functions of all tensors, and the loops of the host's memory."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradclip.backends.host import arrays, kernels
from gradclip.backends.host.lane import HostLane, at
from gradclip.backends.host.threads import cores
from gradclip.backends.jax import norm, scale
from gradclip.backends.jax.distributed import awaited
from gradclip.backends.jax.places import beside
from gradclip.backends.jax.versions import enable_x64, is_committed, is_without_mesh
from gradclip.core import norms
from gradclip.core.backend import Backend, Tensor, number
from gradclip.core.dtypes import WIDE
from gradclip.core.lane import Into
from gradclip.core.reference import Reference

__all__ = ["Compiled", "InMemory", "JaxReference"]

_LARGE = 1 << 18  # elements from which a loop of the host pays
_SIZE = operator.attrgetter("size")


class JaxReference(Reference):
    """The reference for XLA: each norm on the host is one compiled function, in float64 even if JAX's float64 is off."""

    # XLA compiles equal functions once; functions that each take another element of a vector are not equal
    stacks_norms = False

    def product(self, x: Tensor, coefficient: Any) -> Tensor:
        if isinstance(coefficient, float):
            return super().product(x, coefficient)
        return super().product(x, beside(coefficient, x))

    def _norms(self, tensors: Sequence[Tensor], order: float, wide: str) -> list[Any]:
        if not self.backend.reads_free(tensors):
            return super()._norms(tensors, order, wide)
        with enable_x64(True):
            return [number(self.backend, _norm(self.backend, _placed(x), order)) for x in tensors]


def _placed(x: Tensor) -> Tensor:
    """The array, or an empty one on one device: the norm of that is a constant, which JAX cannot place on an explicit mesh."""
    return x if x.size else jnp.zeros(x.shape, x.dtype)


@functools.partial(jax.jit, static_argnums=(0, 2))
def _norm(backend: Backend, x: Tensor, order: float) -> Tensor:
    return norms.norm(backend, x, order, wide="float64")


class Compiled(JaxReference):
    """Tensors that one compiled function takes together, with one dtype of norms: while tracing, and on other devices."""

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2 or wide not in ("", norm.real(tensors[0])):
            return super().total(tensors, order, wide)
        return self._found(tensors, [norm.total(self.backend, list(tensors))])[0]

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2:
            return super().each(tensors, order)
        return self._found(tensors, norm.each(self.backend, list(tensors)))

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        if isinstance(factors, (float, list)) or factors.ndim:
            return super().scale(tensors, factors, into)
        scaled: list[Tensor] = scale.times_or_same(list(tensors), beside(factors, tensors[0]))
        return scaled

    def _found(self, tensors: Sequence[Tensor], found: list[Tensor]) -> list[Any]:
        if self.backend.reads_free(tensors):
            return [number(self.backend, x) for x in found]
        return list(map(awaited, found))


class InMemory(HostLane, JaxReference):
    """Arrays in the host's memory: NumPy reads them without a copy, and large results take over memory that NumPy made."""

    threads = staticmethod(cores)
    is_immutable = True

    def _run(self, loop: Any, tensors: Sequence[Tensor], into: Into, *numbers: Any) -> list[Tensor]:
        """Small tensors use a compiled function: JAX takes longer to accept memory than XLA to fill it."""
        large = [i for i, size in enumerate(map(_SIZE, tensors)) if size >= _LARGE and _takes_memory(tensors[i])]
        if len(large) == len(tensors):
            return super()._run(loop, tensors, into, *numbers)
        function = scale.times if loop is kernels.loops.multiply else scale.bounded
        with np.errstate(over="ignore"):  # a bound beyond the dtype is no bound
            vectors = [np.array(n, WIDE[self.dtype]) for n in numbers]
        if not large:
            return scale.by_chunks(function, tensors, *vectors)
        small = sorted(set(range(len(tensors))).difference(large))
        results: list[Tensor] = [None] * len(tensors)
        of_large = super()._run(loop, [tensors[i] for i in large], into, *(at(large, n) for n in numbers))
        of_small = scale.by_chunks(function, [tensors[i] for i in small], *(v[small] if v.ndim else v for v in vectors))
        for i, x in zip((*large, *small), (*of_large, *of_small), strict=True):
            results[i] = x
        return results

    def pieces(self, tensors: Sequence[Any]) -> list[Any]:
        arrays = list(map(np.asarray, tensors))
        arrays = [x if x.flags.c_contiguous else np.ascontiguousarray(x) for x in arrays]  # an array with its own layout
        if self.kinds == ["bfloat16"] or arrays[0].dtype.kind != "f":  # NumPy has no buffer for it
            return [x.view(np.uint16) for x in arrays]
        return arrays

    def room(self, tensors: Sequence[Tensor]) -> list[Any]:
        return [arrays.new(x.shape, x.dtype) for x in tensors]

    def finished(self, made: list[Any], tensors: Sequence[Tensor]) -> list[Tensor]:
        where = [x.sharding if is_committed(x) else None for x in tensors]
        return [jax.device_put(array, place, may_alias=True) for array, place in zip(made, where, strict=True)]


def _takes_memory(x: Tensor) -> bool:
    """Whether memory of the host becomes a tensor on the same device without a copy."""
    # an array without a chosen device goes to the mesh, if one is set
    return is_committed(x) or is_without_mesh()
