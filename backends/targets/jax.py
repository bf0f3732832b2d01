"""JAX's arrays, and optax's clips."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from gradclip.backends.targets.host import Read, from_numpy, to_numpy
from gradclip.conformance.adapted import features_of, natives_of, scoped
from gradclip.conformance.target import OPTIONS, ComposedTarget, Run
from gradclip.natives import Applied

__all__ = ["JaxArrays", "arrays", "native"]

enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64  # its name before JAX 0.8
Function = Callable[[list[Any]], list[Any]]


class JaxArrays:
    """Immutable arrays. Arrays of 64 bits are made and clipped under ``enable_x64``."""

    name = f"jax {jax.__version__}"
    versions: ClassVar[dict[str, str]] = {"jax": jax.__version__, "optax": optax.__version__}
    device = jax.default_backend()
    lacks = ("subnormal",)  # XLA's arithmetic turns them into zeros

    def make(self, values: Sequence[Any], shape: Sequence[int], dtype: str) -> jax.Array:
        with enable_x64(dtype in _WIDE):
            return jnp.asarray(to_numpy(values, shape, dtype))

    def read(self, array: Any) -> Read:
        return from_numpy(array)

    def trace(self, function: Function) -> Function:
        return lambda arrays: self._scoped(jax.jit(function), arrays)

    def derivative(self, function: Function, arrays: Sequence[Any]) -> list[Any]:
        def total(arrays: list[Any]) -> Any:
            return sum(jnp.sum(output) for output in function(arrays) if output is not None)

        return list(self._scoped(jax.grad(total), list(arrays)))

    def _scoped(self, function: Callable[[list[Any]], Any], arrays: Sequence[Any]) -> Any:
        with self.scope(arrays, {}):
            return function(list(arrays))

    def scope(self, gradients: Sequence[Any], arguments: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """64 bits if a gradient has them; otherwise a NumPy float is a float32, as for JAX's users."""
        tensors = [*gradients, *(arguments.get("parameters") or ())]
        context: AbstractContextManager[Any] = enable_x64(any(str(getattr(x, "dtype", "")) in _WIDE for x in tensors))
        return context


_WIDE = ("float64", "complex128", "int64")
arrays = JaxArrays()


def native() -> ComposedTarget:
    """optax's own transformations."""
    features = features_of(arrays) - {"int32", "int64", "bool", "iterator"}
    natives, claims = natives_of("optax", features)
    runs = {}
    for operation, one in natives.items():
        claims[operation] -= OPTIONS - inspect.signature(getattr(optax, one.last)).parameters.keys()  # of an older optax
        is_updated = one.applied is Applied.CHAIN
        if one.rule().is_by_value or not is_updated:
            claims[operation] -= {"complex64", "complex128"}
        if not is_updated:
            claims[operation] -= {"none"}
        runs[operation] = (_updated if is_updated else _per_example)(getattr(optax, one.last))
    name = f"optax {optax.__version__}"
    return ComposedTarget(name, arrays, claims, {operation: scoped(arrays, run) for operation, run in runs.items()})


def _updated(make: Callable[..., optax.GradientTransformation]) -> Run:
    def run(gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[list[Any], Any]:
        params = arguments.pop("parameters", None)
        transformation, updates = make(**arguments), list(gradients)
        return transformation.update(updates, transformation.init(updates if params is None else params), params)[0], None

    return run


def _per_example(function: Callable[..., Any]) -> Run:
    return lambda gradients, arguments: (function(list(gradients), **arguments)[0], None)
