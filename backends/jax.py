"""JAX arrays and tracers, any registered pytree, and the slot that optax has for a clip."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree_util
from jax.core import Tracer

from gradclip.backend import Backend, Tensor, plain_key
from gradclip.backends import host, jax_distributed, jax_norm, kernels
from gradclip.backends.threads import cores
from gradclip.clip import clip
from gradclip.dtypes import FLOATS, WIDE, normal_factors
from gradclip.errors import ArgumentError, ArgumentTypeError
from gradclip.groups import Rules, check_groups
from gradclip.parts import Processes

if TYPE_CHECKING:
    import optax  # optional: only gradient_transformation needs it

__all__ = ["JaxBackend", "MissingParamsError", "gradient_transformation"]

_CHUNK, _SMALL = 64, 1 << 17  # so many tensors of up to so many elements are one call of a compiled function
_LARGE = 1 << 20  # elements from which on NumPy's new memory is in large pages
_DTYPE, _SHARDING = map(operator.attrgetter, ("dtype", "sharding"))


class MissingParamsError(ArgumentError, ArgumentTypeError):
    """A rule relative to the parameters, in an optax chain that was not given them."""


class JaxBackend(Backend):
    """Arrays are gradients themselves and cannot be written: ``clip_`` refuses them, ``clip`` returns new ones.

    XLA's own reductions of many elements are trees, accurate at any size; those of few are done in ``jax_norm``.
    """

    name = "jax"
    guards_squares = True
    fuses_numbers = True  # XLA compiles equal functions once; where each takes another number of a vector, none are equal

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
        return jnp.maximum(x, _like(y, x))

    def minimum(self, x: Tensor, y: Any) -> Tensor:
        return jnp.minimum(x, _like(y, x))

    def number(self, x: Tensor) -> float:
        return float(np.asarray(x).item())

    def is_concrete(self, tensors: Sequence[Tensor]) -> bool:
        return all(_on_host(x) for x in tensors) and not _is_tracing()

    def can_look(self, x: Tensor) -> bool:
        return not isinstance(x, Tracer)

    def is_container(self, x: object) -> bool:
        return not tree_util.all_leaves([x])

    def flatten(self, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        leaves, structure = tree_util.tree_flatten(tree, _is_none)
        return leaves, structure.unflatten

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        for keys, leaf in tree_util.tree_flatten_with_path(tree, _is_none)[0]:
            yield path + tree_util.keystr(tuple(map(_plain, keys))), leaf

    def detach(self, x: Tensor) -> Tensor:
        return lax.stop_gradient(x)

    def size(self, x: Tensor) -> Any:
        return x.size if isinstance(x.size, int) else jnp.asarray(x.size)

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
            return _times_or_same([x], _beside(coefficient, x))[0]
        return _times([x], *(np.array(factor, jax_norm.real(x)) for factor in normal_factors(coefficient)))[0]

    def scaled(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> list[Tensor]:
        if isinstance(coefficient, (float, list)):
            each = coefficient if isinstance(coefficient, list) else [coefficient]
            if not plain or any(len(normal_factors(c)) > 1 for c in set(each)):
                return super().scaled(tensors, coefficient)
            return _by_size(kernels.multiply, _times, tensors, np.array(coefficient, WIDE[plain]))
        if not _are_together([*tensors, coefficient]):
            return super().scaled(tensors, coefficient)
        scaled: list[Tensor] = _times_or_same(list(tensors), coefficient)
        return scaled

    def clamped(self, tensors: Sequence[Tensor], lower: float, upper: float, keep: bool = False) -> list[Tensor]:
        with np.errstate(over="ignore"):  # beyond the dtype there is no bound
            bounds = [np.array(bound, tensors[0].dtype) for bound in (lower, max(lower, upper))]
        # to look at a small one takes as long as to clip it
        fit = [x.size > _SMALL and lower <= 0 <= upper and _on_host(x) and _fits(x, lower, upper) for x in tensors]
        if not any(fit):
            return _by_size(kernels.clamp, _bounded, tensors, *bounds)
        rest = iter(_by_size(kernels.clamp, _bounded, [x for x, fits in zip(tensors, fit, strict=True) if not fits], *bounds))
        return [x if fits else next(rest) for x, fits in zip(tensors, fit, strict=True)]


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
        if not relative:
            params = None
        elif params is None:
            hint = "call update(updates, state, params)."
            raise MissingParamsError(f"{relative[0]} needs the parameters.", "params=None", hint)
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


def _is_tracing() -> bool:
    """Whether a function is being traced: an operation on constants is then traced with it, and has no value either."""
    return isinstance(_nothing(), Tracer)


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


# ---- what is compiled ------------------------------------------------------------------------------------------------------


def _by_size(loop: Any, function: Callable[..., list[Tensor]], tensors: Sequence[Tensor], *numbers: Any) -> list[Tensor]:
    """A compiled function of tensors of one dtype; of large ones in the host's memory a loop of the host, in half the time.

    Of its numbers each is one for all tensors, or a vector of one for each.
    """
    large = [i for i, x in enumerate(tensors) if x.size >= _LARGE and _is_in_memory(x)]
    kind = kernels.KINDS.get(str(tensors[0].dtype)) if large else None
    if kind is None:
        return _by_chunks(function, tensors, *numbers)
    arrays = [np.ascontiguousarray(tensors[i]) for i in large]  # a copy of one whose layout is not the usual one
    made = [host.new(x.shape, x.dtype) for x in arrays]
    host.compiled(loop, kind, arrays, made, *(n[large].tolist() if n.ndim else float(n) for n in numbers), threads=cores)
    new = dict(zip(large, map(_put_beside, made, [tensors[i] for i in large]), strict=True))
    rest = [i for i in range(len(tensors)) if i not in new]
    compiled = iter(_by_chunks(function, [tensors[i] for i in rest], *(n[rest] if n.ndim else n for n in numbers)))
    return [new[i] if i in new else next(compiled) for i in range(len(tensors))]


def _is_in_memory(x: Tensor) -> bool:
    """Whether a result in the host's memory becomes a tensor on the same device without a copy."""
    # what is on no device on purpose goes where a mesh is, if there is one
    return _on_host(x) and len(x.devices()) == 1 and (x.committed or jax.sharding.get_abstract_mesh().empty)


def _fits(x: Tensor, lower: float, upper: float) -> bool:
    return host.fits(np.asarray(x), lower, upper, cores)


def _put_beside(array: Any, like: Tensor) -> Tensor:
    return jax.device_put(array, like.sharding if like.committed else None, may_alias=True)


def _by_chunks(function: Callable[..., list[Tensor]], tensors: Sequence[Tensor], *numbers: Any) -> list[Tensor]:
    """A compiled function of tensors, called for several small ones at a time, and for each large one by itself.

    Of its numbers each is one for all tensors, or a vector of one for each.
    """
    results: list[Tensor] = []
    for start, end in _chunks([x.size for x in tensors]):
        results += function(list(tensors[start:end]), *(n[start:end] if n.ndim else n for n in numbers))
    return results


def _chunks(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for end in range(1, len(sizes) + 1):
        if end == len(sizes) or end - start == _CHUNK or max(sizes[end - 1], sizes[end]) > _SMALL:
            yield start, end
            start = end


@functools.partial(jax.jit, inline=True)
def _times(tensors: list[Tensor], *factors: Tensor) -> list[Tensor]:
    return [_product(x, *(f[i] if f.ndim else f for f in factors)) for i, x in enumerate(tensors)]


@functools.partial(jax.jit, inline=True)
def _times_or_same(tensors: list[Tensor], coefficient: Tensor) -> list[Tensor]:
    fits = coefficient >= 1
    return [jnp.where(fits, x, _product(x, coefficient)) for x in tensors]


def _product(x: Tensor, *factors: Tensor) -> Tensor:
    result = x.astype(WIDE[str(x.dtype)])
    for factor in factors:
        result = result * factor.astype(jax_norm.real(x))
    return result.astype(x.dtype)


@functools.partial(jax.jit, inline=True)
def _bounded(tensors: list[Tensor], lower: Tensor, upper: Tensor) -> list[Tensor]:
    return [jnp.maximum(jnp.minimum(x, upper), lower) for x in tensors]


def _plain(key: Any) -> Any:
    return tree_util.DictKey(plain_key(key.key)) if isinstance(key, tree_util.DictKey) else key
