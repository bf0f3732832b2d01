from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.experimental.layout
import jax.numpy as jnp
import numpy as np
from frameworks.base import LARGE, Framework, release

jax.config.update("jax_enable_x64", True)  # without it float64 becomes float32; test_without_x64 covers that


class JaxFramework(Framework):
    name = "jax"
    thresholds = (("gradclip.backends.jax.lanes._LARGE", LARGE),)
    packages = ("jax", "optax")
    ulps = 4 if release(jax.__version__) >= [0, 10] else 8  # older releases sum less accurately
    has_layouts = hasattr(jax.experimental.layout, "Format")  # from 0.7 on; the older name fails
    dtypes = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    flushes_subnormals = True
    jits = ("jit",)

    def ulps_of(self, order: float) -> int:
        """The tolerance of a norm of this order under jit; before JAX 0.10 norms other than the Euclidean are less accurate."""
        return self.ulps if self.ulps == 4 or order == 2 else 12

    def bits(self, is_wide: bool) -> AbstractContextManager[Any]:
        return jax.enable_x64(is_wide)

    def make(self, values: Any, dtype: str = "float32") -> Any:
        return jnp.asarray(np.array(values).astype(jnp.dtype(dtype)))

    def exp(self, tensor: Any) -> Any:
        return jnp.exp(tensor)

    def read(self, tensor: Any) -> np.ndarray:
        values = np.array(tensor)
        if jnp.issubdtype(values.dtype, jnp.complexfloating):
            return values.astype(np.complex128)
        return values.astype(np.float64) if jnp.issubdtype(values.dtype, jnp.floating) else values

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype)

    def jit(self, how: str, function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
        return jax.jit(function)

    def derivative(self, function: Callable[[list[Any]], Any], tensors: list[Any]) -> list[np.ndarray]:
        return [self.read(derivative) for derivative in jax.grad(function)(tensors)]


framework = JaxFramework()
