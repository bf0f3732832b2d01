"""JAX arrays and tracers, any registered pytree, and the slot that optax has for a clip."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from gradclip.backends.host import kernels
from gradclip.backends.jax import norm, scale
from gradclip.backends.jax.containers import Pytrees
from gradclip.backends.jax.distributed import JaxDistributed, awaited
from gradclip.backends.jax.lanes import Compiled, InMemory, JaxReference
from gradclip.backends.jax.places import are_together, beside, is_on_host, is_tracing
from gradclip.backends.jax.slot import MissingParamsError, gradient_transformation
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import COMPLEX, WIDE, promote
from gradclip.core.lane import Lane

__all__ = ["JaxBackend", "MissingParamsError", "gradient_transformation"]

_DTYPE, _SHARDING = map(operator.attrgetter, ("dtype", "sharding"))


class JaxBackend(Backend):
    """Arrays are gradients and immutable: ``clip_`` refuses them, ``clip`` returns new ones.

    XLA's reductions of many elements are trees, accurate at any size; :mod:`gradclip.backends.jax.norm` sums few elements.
    """

    name = "jax"
    fused: ClassVar = {
        **dict.fromkeys([JaxReference, Compiled], "gradclip.backends.jax.fused:fused"),
        InMemory: "gradclip.backends.jax.fused:in_memory",
    }
    reference = JaxReference
    containers = Pytrees()
    distributed = JaxDistributed()

    def is_tensor(self, x: object) -> bool:
        # a tracer counts as an array, even one of float0, which has no numbers
        return isinstance(x, jax.Array) and not (isinstance(x, Tracer) and self.containers.is_gap(x))

    def dtype(self, x: Tensor) -> str:
        return _name(x.dtype)

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        return tuple(length if isinstance(length, int) else None for length in x.shape)  # symbolic in jax.export

    def size(self, x: Tensor) -> Any:
        size = x.size
        return size if isinstance(size, int) else jnp.asarray(size)

    def reads_free(self, tensors: Sequence[Tensor]) -> bool:
        return all(map(is_on_host, tensors)) and not is_tracing()

    def can_read(self, x: Tensor) -> bool:
        return not isinstance(x, Tracer)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x if x.dtype == dtype else x.astype(dtype)

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        with np.errstate(over="ignore"):  # a number beyond the dtype is infinite, as in the other frameworks
            made = jnp.asarray(value, dtype)
        return made if like is None else beside(made, like)

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        arrays = [beside(self.cast(x, dtype), tensors[0]) for x in tensors]
        return jnp.stack(arrays) if tensors[0].shape else _stacked(arrays)  # jnp.stack is one more operation for each tensor

    def abs(self, x: Tensor) -> Tensor:
        return jnp.abs(x)

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return awaited(norm.summed(x, axes))

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return awaited(norm.largest(x, axes))

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        return jnp.where(condition, x, y)

    def clip(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        return scale.between(x, lower, upper)

    def power(self, x: Tensor, exponent: float) -> Tensor:
        return jnp.sqrt(x) if exponent == 0.5 else x**exponent

    def log(self, x: Tensor) -> Tensor:
        return jnp.log(x)

    def tolist(self, x: Tensor) -> Any:
        return np.asarray(x).tolist()

    def detach(self, x: Tensor) -> Tensor:
        return lax.stop_gradient(x)

    def lane(self, tensors: Sequence[Tensor]) -> Lane | None:
        # tests all at once: one by one, 2,000 gradients would take longer than their norm
        dtypes = list(map(_name, set(map(_DTYPE, tensors))))
        if not WIDE.keys() >= set(dtypes):
            return None
        if self._are_in_memory(tensors) and kernels.KINDS.keys() >= set(dtypes):
            return InMemory(self, dtypes[0] if len(dtypes) == 1 else promote(dtypes), dtypes)
        if len({COMPLEX.get(WIDE[dtype], WIDE[dtype]) for dtype in dtypes}) > 1 or not are_together(tensors):
            return None
        return Compiled(self)

    def _are_in_memory(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these are distinct arrays in the host's memory, on one device."""
        if any(issubclass(kind, Tracer) for kind in set(map(type, tensors))) or len(set(map(id, tensors))) < len(tensors):
            return False
        first = tensors[0]
        return len(set(map(_SHARDING, tensors))) == 1 and len(first.devices()) == 1 and self.reads_free([first])


_stacked = jax.jit(jnp.stack)


@functools.lru_cache(64)  # NumPy takes 3 us for this, longer than for a small array's norm
def _name(dtype: Any) -> str:
    return str(dtype)
