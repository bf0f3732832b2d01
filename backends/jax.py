"""JAX arrays and tracers, any registered pytree, and the slot that optax has for a clip."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree_util
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state

from gradclip.backend import Tensor
from gradclip.backends import host, jax_distributed, jax_norm, jax_scale, kernels
from gradclip.backends.threads import cores
from gradclip.clip import clip
from gradclip.containers import plain_key
from gradclip.dtypes import FLOATS, WIDE, is_one_factor, normal_factors
from gradclip.errors import ArgumentError, ArgumentTypeError
from gradclip.groups import Rules, check_groups
from gradclip.legacy import LegacyBackend
from gradclip.parts import Processes
from gradclip.rule import ClipResult

if TYPE_CHECKING:
    import optax  # optional: only gradient_transformation needs it

__all__ = ["JaxBackend", "MissingParamsError", "gradient_transformation"]

_OF_NUMPY = (np.ndarray, np.generic)
_DTYPE, _SHARDING = map(operator.attrgetter, ("dtype", "sharding"))
with jax.ensure_compile_time_eval():  # this module may be imported while a function is being traced
    _OUTSIDE = get_opaque_trace_state()


class MissingParamsError(ArgumentError, ArgumentTypeError):
    """A rule relative to the parameters, in an optax chain that was not given them."""


# so that a compiled function can return one
tree_util.register_dataclass(ClipResult, ["grads", "norm", "coefficient"], [])


class JaxBackend(LegacyBackend):
    """Arrays are gradients themselves and cannot be written: ``clip_`` refuses them, ``clip`` returns new ones.

    XLA's own reductions of many elements are trees, accurate at any size; those of few are done in ``jax_norm``.
    """

    name = "jax"
    guards_squares = True
    fuses_numbers = True  # XLA compiles equal functions once; where each takes another number of a vector, none are equal

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, jax.Array)  # a tracer is one too

    def dtype(self, x: Tensor) -> str:
        return host.dtype_name(x.dtype)

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        return tuple(length if isinstance(length, int) else None for length in x.shape)  # symbolic in jax.export

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x if x.dtype == dtype else x.astype(dtype)

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        made = jnp.asarray(value, dtype)
        return made if like is None else _beside(made, like)

    def widest(self) -> str:
        return "float64" if jax.config.jax_enable_x64 else "float32"

    def group(self, reduce: object) -> Processes | None:
        return jax_distributed.group_of(reduce)

    def whose(self, x: Tensor) -> str:
        return jax_distributed.whose(x)

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        return jnp.stack([_beside(self.cast(x, dtype), tensors[0]) for x in tensors])

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return jnp.reshape(x, shape)

    def abs(self, x: Tensor) -> Tensor:
        return jnp.abs(x)

    def sqrt(self, x: Tensor) -> Tensor:
        return jnp.sqrt(x)

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return jax_distributed.awaited(jax_norm.tree_sum(x) if axes is None else jnp.sum(x, axis=axes, keepdims=True))

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return jax_distributed.awaited(jnp.max(x, axis=axes, keepdims=axes is not None))

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        return jnp.where(condition, x, y)

    def maximum(self, x: Tensor, y: Any) -> Tensor:
        return jnp.maximum(x, jax_scale.like(y, x))

    def minimum(self, x: Tensor, y: Any) -> Tensor:
        return jnp.minimum(x, jax_scale.like(y, x))

    def number(self, x: Tensor) -> float:
        return float(np.asarray(x).item())

    def is_concrete(self, tensors: Sequence[Tensor]) -> bool:
        return all(jax_scale.is_on_host(x) for x in tensors) and not _is_tracing()

    def can_look(self, x: Tensor) -> bool:
        return not isinstance(x, Tracer)

    def is_container(self, x: object) -> bool:
        return not isinstance(x, ClipResult) and not tree_util.all_leaves([x])

    def flatten(self, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        leaves, structure = tree_util.tree_flatten(tree, _is_leaf)
        return leaves, structure.unflatten

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        for keys, leaf in tree_util.tree_flatten_with_path(tree, _is_leaf)[0]:
            yield path + tree_util.keystr(tuple(map(_plain, keys))), leaf

    def detach(self, x: Tensor) -> Tensor:
        return lax.stop_gradient(x)

    def size(self, x: Tensor) -> Any:
        size = x.size
        return size if isinstance(size, int) else jnp.asarray(size)

    def plain(self, tensors: Sequence[Tensor]) -> str:
        # asked of all at once: one by one, 2,000 gradients would take longer than their norm
        if len(set(map(type, tensors))) > 1 or isinstance(tensors[0], Tracer) or len(set(map(id, tensors))) < len(tensors):
            return ""
        if len(set(map(_DTYPE, tensors))) > 1 or len(set(map(_SHARDING, tensors))) > 1 or _is_tracing():
            return ""
        dtype = self.dtype(tensors[0])
        return dtype if dtype in FLOATS else ""

    # NumPy reads arrays without a copy, and has nothing to compile for each new shape

    @np.errstate(all="ignore")
    def fast_norm(self, x: Tensor, order: float) -> float | None:
        return host.norm(np.asarray(x), order, cores)

    @np.errstate(all="ignore")
    def fast_norms(self, tensors: Sequence[Tensor], order: float) -> list[float | None]:
        return host.norms(list(map(np.asarray, tensors)), order, cores)

    @np.errstate(all="ignore")
    def fast_total(self, tensors: Sequence[Tensor], order: float) -> float | None:
        return host.total(list(map(np.asarray, tensors)), order, cores)

    def euclidean(self, tensors: Sequence[Tensor]) -> list[Tensor | None]:
        if _are_alike(tensors):
            return list(jax_norm.each(list(tensors)))
        return [jax_distributed.awaited(jax_norm.total([x])) for x in tensors]

    def euclidean_total(self, tensors: Sequence[Tensor]) -> Tensor | None:
        return jax_norm.total(list(tensors)) if _are_alike(tensors) else None

    def scale(self, x: Tensor, coefficient: Any) -> Tensor:
        if not isinstance(coefficient, float):
            return jax_scale.times_or_same([x], _beside(coefficient, x))[0]
        return jax_scale.times([x], *(np.array(factor, jax_norm.real(x)) for factor in normal_factors(coefficient)))[0]

    def scaled(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> list[Tensor]:
        if isinstance(coefficient, (float, list)):
            each = coefficient if isinstance(coefficient, list) else [coefficient]
            if not plain or not all(map(is_one_factor, set(each))):
                return super().scaled(tensors, coefficient)
            return jax_scale.by_size(kernels.multiply, jax_scale.times, tensors, np.array(coefficient, WIDE[plain]))
        if not _are_together([*tensors, coefficient]):
            return super().scaled(tensors, coefficient)
        scaled: list[Tensor] = jax_scale.times_or_same(list(tensors), coefficient)
        return scaled

    def clamp(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        return jax_scale.between(x, lower, upper)

    def clamped(self, tensors: Sequence[Tensor], lower: float, upper: float, keep: bool = False) -> list[Tensor]:
        return jax_scale.bounded(tensors, lower, upper)


def gradient_transformation(rule: Rules) -> optax.GradientTransformation:
    """A rule of any dialect as a link of an ``optax.chain``.

    It has no state, so that a checkpoint of an optimizer keeps its shape where this takes the place of optax's own clip. Under
    ``optax.inject_hyperparams`` the limit may change from step to step: wrap a function of the limit that returns this.

    Args:
        rule: from a dialect, or groups with such rules; a rule that is relative to the parameters needs ``params`` in
            ``update``, as optax's does.

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

    relative = [group.rule.name for group in check_groups(rule, keeps_shape=True) if group.rule.relative_to is not None]

    def update(updates: Any, state: optax.OptState, params: Any = None) -> tuple[Any, optax.OptState]:
        if relative and params is None:
            hint = "call update(updates, state, params)."
            raise MissingParamsError(f"{relative[0]} needs the parameters.", "params=None", hint)
        return clip(_arrays(updates), rule, params=_arrays(params) if relative else None).grads, state

    return optax.GradientTransformation(optax.init_empty_state, update)


def _arrays(tree: Any) -> Any:
    """A pytree with its NumPy arrays as JAX arrays: optax takes them too."""
    if not any(issubclass(kind, _OF_NUMPY) for kind in set(map(type, tree_util.tree_leaves(tree)))):
        return tree
    return tree_util.tree_map(lambda x: jnp.asarray(x) if isinstance(x, _OF_NUMPY) else x, tree)


def _is_leaf(x: object) -> bool:
    # a leaf, not the empty node that it is to JAX: results have an entry for it; and a clip's result is not the gradients
    return x is None or isinstance(x, ClipResult)


def _is_tracing() -> bool:
    """Whether a function is being traced: an operation on constants is then traced with it, and has no value either."""
    is_outside = bool(get_opaque_trace_state() == _OUTSIDE)  # to ask this takes a tenth of the time of a call
    return not is_outside and isinstance(_nothing(), Tracer)


@jax.jit
def _nothing() -> Tensor:
    return np.int32(0)


def _are_together(tensors: Sequence[Tensor]) -> bool:
    """Whether one compiled function can take them all: while tracing, and where all are on the same devices."""
    return any(isinstance(x, Tracer) for x in tensors) or len(set(map(_SHARDING, tensors))) == 1


def _are_alike(tensors: Sequence[Tensor]) -> bool:
    """Whether one compiled function can take them all, and their norms have one dtype."""
    return _are_together(tensors) and len(set(map(jax_norm.real, tensors))) == 1


def _beside(x: Tensor, like: Tensor) -> Tensor:
    """``x``, of which every device may hold a copy, on the devices of ``like``."""
    if isinstance(x, Tracer) or isinstance(like, Tracer) or x.devices() == like.devices():
        return x
    mesh = getattr(like.sharding, "mesh", None)
    return jax.device_put(x, like.sharding if mesh is None else jax.NamedSharding(mesh, jax.P()))


def _plain(key: Any) -> Any:
    return tree_util.DictKey(plain_key(key.key)) if isinstance(key, tree_util.DictKey) else key
