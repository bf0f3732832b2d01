"""JAX arrays and tracers, any registered pytree, and the slot that optax has for a clip."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree_util
from jax.core import Tracer

from gradclip.backend import WIDE, Backend, Tensor, normal_factors
from gradclip.backends import host
from gradclip.clip import clip
from gradclip.errors import ArgumentError, ArgumentTypeError
from gradclip.rule import Rule, check_rule

if TYPE_CHECKING:
    import optax  # optional: only gradient_transformation needs it

__all__ = ["JaxBackend", "MissingParamsError", "gradient_transformation"]

_ONE = np.float32(1)


class MissingParamsError(ArgumentError, ArgumentTypeError):
    """A rule relative to the parameters, in an optax chain that was not given them."""


class JaxBackend(Backend):
    """Arrays are gradients themselves and cannot be written: ``clip_`` refuses them, ``clip`` returns new ones.

    XLA's own reductions are trees, accurate at any size, so that traced code needs no care beyond the core's.
    """

    name = "jax"

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, jax.Array)  # a tracer is one too

    def dtype(self, x: Tensor) -> str:
        return str(x.dtype)

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        return tuple(length if isinstance(length, int) else None for length in x.shape)  # symbolic in jax.export

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x if x.dtype == dtype else x.astype(dtype)

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        made = jnp.asarray(value, dtype)
        return made if like is None else _beside(made, like)

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        return jnp.stack([_beside(self.cast(x, dtype), tensors[0]) for x in tensors])

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return jnp.reshape(x, shape)

    def abs(self, x: Tensor) -> Tensor:
        return jnp.abs(x)

    def sqrt(self, x: Tensor) -> Tensor:
        return jnp.sqrt(x)

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return jnp.sum(x, axis=axes, keepdims=axes is not None)

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return jnp.max(x, axis=axes, keepdims=axes is not None)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        return jnp.where(condition, x, y)

    def maximum(self, x: Tensor, y: Any) -> Tensor:
        return jnp.maximum(x, _like(y, x))

    def minimum(self, x: Tensor, y: Any) -> Tensor:
        return jnp.minimum(x, _like(y, x))

    def number(self, x: Tensor) -> float:
        return float(np.asarray(x).item())

    def is_concrete(self, tensors: Sequence[Tensor]) -> bool:
        # while a function is traced, an operation on constants is traced with it, and has no value either
        return all(_on_host(x) for x in tensors) and not isinstance(lax.neg(_ONE), Tracer)

    def can_look(self, x: Tensor) -> bool:
        return not isinstance(x, Tracer)

    def is_container(self, x: object) -> bool:
        return not tree_util.all_leaves([x])

    def flatten(self, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        leaves, structure = tree_util.tree_flatten(tree, _is_none)
        return leaves, structure.unflatten

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        for keys, leaf in tree_util.tree_flatten_with_path(tree, _is_none)[0]:
            yield path + tree_util.keystr(keys), leaf

    def detach(self, x: Tensor) -> Tensor:
        return lax.stop_gradient(x)

    def size(self, x: Tensor) -> Any:
        return x.size if isinstance(x.size, int) else jnp.asarray(x.size)

    def fast_norm(self, x: Tensor, order: float) -> float | None:
        return host.norm(np.asarray(x), order)  # NumPy reads it without a copy, and has nothing to compile for each new shape

    def scale(self, x: Tensor, coefficient: Any) -> Tensor:
        if isinstance(coefficient, float):
            return _times(x, normal_factors(coefficient), WIDE[self.dtype(x)])
        return _times_or_same(x, _beside(coefficient, x), WIDE[self.dtype(x)])


def gradient_transformation(rule: Rule) -> optax.GradientTransformation:
    """A rule of any dialect as a link of an ``optax.chain``.

    It has no state, so that a checkpoint of an optimizer keeps its shape where this takes the place of optax's own clip. Under
    ``optax.inject_hyperparams`` the limit may change from step to step: wrap a function of the limit that returns this.

    Args:
        rule: from a dialect; a rule that is relative to the parameters needs ``params`` in ``update``, as optax's does.

    Returns:
        An ``optax.GradientTransformation``. The gradients may be any pytree, with None or NumPy arrays in it.

    Raises:
        TypeError: if ``rule`` is none.
        ValueError: for a rule per example, which needs an axis of examples and removes it.

    Example:
        >>> import optax, jax.numpy as jnp
        >>> from gradclip.backends.jax import gradient_transformation
        >>> from gradclip.dialects import torch
        >>> optimizer = optax.chain(gradient_transformation(torch.clip_grad_norm(max_norm=1.0)), optax.sgd(1.0))
        >>> params = jnp.zeros(2, "float32")
        >>> updates, state = optimizer.update(jnp.float32([3.0, 4.0]), optimizer.init(params), params)
        >>> updates.round(3)
        Array([-0.6, -0.8], dtype=float32)
    """
    import optax

    check_rule(rule, keeps_shape=True)

    def update(updates: Any, state: optax.OptState, params: Any = None) -> tuple[Any, optax.OptState]:
        if rule.relative_to is None:
            params = None
        elif params is None:
            hint = "call update(updates, state, params)."
            raise MissingParamsError(f"{rule.name} needs the parameters.", "params=None", hint)
        return clip(_arrays(updates), rule, params=_arrays(params)).grads, state

    return optax.GradientTransformation(optax.init_empty_state, update)


def _arrays(tree: Any) -> Any:
    """A pytree with its NumPy arrays as JAX arrays: optax takes them too."""
    return tree_util.tree_map(lambda x: jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x, tree)


def _is_none(x: object) -> bool:
    return x is None  # a leaf, not the empty node that it is to JAX: results have an entry for it


def _like(y: Any, x: Tensor) -> Any:
    return jnp.asarray(y, x.dtype) if isinstance(y, int) else y  # of itself an int is an int64, or an int32


def _on_host(x: Tensor) -> bool:
    return not isinstance(x, Tracer) and x.is_fully_addressable and all(device.platform == "cpu" for device in x.devices())


def _beside(x: Tensor, like: Tensor) -> Tensor:
    """``x``, of which every device may hold a copy, on the devices of ``like``."""
    if isinstance(x, Tracer) or isinstance(like, Tracer) or x.devices() == like.devices():
        return x
    mesh = getattr(like.sharding, "mesh", None)
    return jax.device_put(x, like.sharding if mesh is None else jax.NamedSharding(mesh, jax.P()))


@functools.partial(jax.jit, static_argnums=2, inline=True)
def _times(x: Tensor, factors: tuple[float, ...], wide: str) -> Tensor:
    result = x.astype(wide)
    for factor in factors:
        result = result * factor
    return result.astype(x.dtype)


@functools.partial(jax.jit, static_argnums=2, inline=True)
def _times_or_same(x: Tensor, coefficient: Tensor, wide: str) -> Tensor:
    return jnp.where(coefficient >= 1, x, (x.astype(wide) * coefficient.astype(wide)).astype(x.dtype))
