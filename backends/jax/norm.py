"""Euclidean norms in compiled JAX: one read of the gradients, and right also where squares overflow or vanish.

It reads no value. On the host it squares small tensors in float64, where no square of a float32 overflows or vanishes; large
ones in float32, and again in a rarely taken branch if a square may have. On an accelerator a branch would wait for the host,
and float64 may be slow: there squares overflow float32 as they do in optax.

XLA sums 4,096 elements and more in trees, a float32 norm within 2 ulp, and fewer one after the other, within 22. In float64
for all, 256 Ki elements take 1.5 times as long. With a branch for each, 200 tensors compile in 7 s, not in 1.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gradclip.backends.jax.places import compiles_for_host, has_float64
from gradclip.backends.jax.versions import ADDS_ALONG_AN_AXIS, ADDS_IN_A_ROW, enable_x64
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import COMPLEX, WIDE
from gradclip.core.ranges import has_room, is_right, scale

__all__ = ["each", "largest", "real", "summed", "total"]

_FEW = (1 << 12) - 1  # elements up to which XLA sums one after the other
_BITS = {"float32": "int32", "float64": "int64"}  # dtypes with whole numbers of the same size


def real(x: Tensor) -> str:
    """The dtype of the norm of a tensor: at least float32."""
    wide = WIDE[str(x.dtype)]
    return COMPLEX.get(wide, wide)


@functools.partial(jax.jit, static_argnums=0, inline=True)
def each(backend: Backend, tensors: list[Tensor]) -> list[Tensor]:
    """The norm of each of several tensors whose norms have one dtype; its derivative is 0 at 0."""
    found: list[Tensor] = _norms(backend, [[x] for x in tensors])
    return found


@functools.partial(jax.jit, static_argnums=0, inline=True)
def total(backend: Backend, tensors: list[Tensor]) -> Tensor:
    """The norm over all of several tensors whose norms have one dtype; its derivative is 0 at 0."""
    return _norms(backend, [tensors])[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _norms(backend: Backend, sets: list[list[Tensor]]) -> list[Tensor]:
    """The norm of each set of tensors."""
    dtype = real(sets[0][0])
    if not compiles_for_host():
        return [_root([_squares(x, dtype) for x in tensors], dtype) for tensors in sets]
    if dtype == "float64" or not has_float64():
        return _checked(sets, -1, lambda tensors: _rescaled(backend, tensors))
    with enable_x64(True):  # also if JAX's float64 is off
        return _checked(sets, _FEW, _wide)


def _checked(sets: list[list[Tensor]], few: int, careful: Callable[[list[Tensor]], Tensor]) -> list[Tensor]:
    """The norm of each set, by float64 squares of up to ``few`` elements; all carefully if a large one may be wrong."""
    dtype = real(sets[0][0])
    found, doubtful = [], []
    for k, tensors in enumerate(sets):
        large = [not isinstance(x.size, int) or x.size > few for x in tensors]
        pairs = list(zip(tensors, large, strict=True))
        found.append(_root([_squares(x, dtype if is_large else "float64") for x, is_large in pairs], dtype))
        if [x for x, is_large in pairs if is_large and 0 not in x.shape and not has_room(str(x.dtype), dtype)]:
            doubtful.append(k)
    if doubtful:
        are_right = functools.reduce(operator.and_, [is_right(found[k], dtype) for k in doubtful])
        chosen = lax.cond(are_right, lambda: [found[k] for k in doubtful], lambda: [careful(sets[k]) for k in doubtful])
        for k, n in zip(doubtful, chosen, strict=True):
            found[k] = n
    return found


def _wide(tensors: list[Tensor]) -> Tensor:
    """The norm in float64."""
    return _root([_squares(x, "float64") for x in tensors], "float32")


def _rescaled(backend: Backend, tensors: list[Tensor]) -> Tensor:
    """The norm where nothing is wider: of all, divided by one power of two; then only what does not matter vanishes."""
    dtype = real(tensors[0])
    some = [_as_one_axis(x) if ADDS_IN_A_ROW else x for whole in tensors if 0 not in whole.shape for x in _parts(whole)]
    extreme = functools.reduce(jnp.maximum, [largest(jnp.abs(x).astype(dtype), None) for x in some])
    divisor = scale(backend, extreme, 2.0, dtype)
    return _root([_squares(x.astype(WIDE[str(x.dtype)]) / divisor, dtype) for x in some], dtype) * divisor


def _root(squares: list[Tensor], dtype: str) -> Tensor:
    return jnp.sqrt(functools.reduce(operator.add, squares)).astype(dtype)


def _squares(x: Tensor, dtype: str) -> Tensor:
    """The sum of the squares of all elements."""
    if jnp.iscomplexobj(x):
        return _squares(x.real, dtype) + _squares(x.imag, dtype)
    return jnp.sum(jnp.square((_as_one_axis(x) if ADDS_IN_A_ROW else x).astype(dtype)))


def _parts(x: Tensor) -> tuple[Tensor, ...]:
    """The real numbers in it. To divide an infinite complex number gives NaN."""
    return (x.real, x.imag) if jnp.iscomplexobj(x) else (x,)


def _as_one_axis(x: Tensor) -> Tensor:
    """The array for a sum of all elements. Several devices would have to exchange elements of a flat one."""
    return jnp.reshape(x, -1) if isinstance(x.size, int) and jax.device_count() == 1 else x


def _is_few(x: Tensor) -> bool:
    return isinstance(x.size, int) and x.size <= _FEW


@_norms.defjvp
def _slopes(backend: Backend, primals: tuple[Any], tangents: tuple[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """The derivative is the tensor divided by its norm, which fits every dtype."""
    (sets,), (moves,) = primals, tangents
    found = _norms(backend, sets)
    slopes = []
    for tensors, of_set, n in zip(sets, moves, found, strict=True):
        divisor = jnp.where(n > 0, n, 1.0)
        terms = [_slope(x, move, divisor) for x, move in zip(tensors, of_set, strict=True)]
        slopes.append(functools.reduce(operator.add, terms))
    return found, slopes


def _slope(x: Tensor, move: Tensor, divisor: Tensor) -> Tensor:
    pairs = zip(_parts(x), _parts(move), strict=True)
    terms = [jnp.sum(p.astype(divisor.dtype) / divisor * m.astype(divisor.dtype)) for p, m in pairs]
    return functools.reduce(operator.add, terms)


# ---- other reductions ------------------------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=1, inline=True)  # one program, which all processes of an array run together
def summed(x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
    """The sum over ``axes``, which keep the length 1, or over all elements.

    XLA adds up few elements one after the other, and is off by 44 ulp after 1,000. So it adds up float32 in float64.
    """
    if x.dtype == np.float32 and has_float64() and (_is_few(x) or (axes is not None and ADDS_ALONG_AN_AXIS)):
        with enable_x64(True):
            return jnp.sum(x, axis=axes, keepdims=axes is not None, dtype="float64").astype("float32")
    if axes is None and _is_few(x) and not jnp.iscomplexobj(x):
        return _sum_by_bits(x)
    return jnp.sum(_as_one_axis(x)) if axes is None else jnp.sum(x, axis=axes, keepdims=True)


def _sum_by_bits(x: Tensor) -> Tensor:
    """The sum where nothing is wider: that of the leading bits, which is not rounded, because so few bits fit into a number.

    Unlike a sum in pairs it does not split an array, which may be sharded over devices.
    """
    constant = lax.stop_gradient(x)
    largest_of_all = jnp.max(jnp.abs(constant), initial=0)
    quantum = jnp.ldexp(jnp.ones_like(largest_of_all), jnp.frexp(largest_of_all)[1] - 12)
    is_usual = (largest_of_all > jnp.finfo(x.dtype).tiny * 2.0**32) & (largest_of_all < np.inf)
    quantum = jnp.where(is_usual, quantum, 0)
    total = jnp.zeros_like(quantum)
    for _ in range(2):
        leading = jnp.where(quantum > 0, jnp.round(constant / quantum) * quantum, 0)
        total, constant, x, quantum = total + jnp.sum(leading), constant - leading, x - leading, quantum * 2.0**-13
    return total + jnp.sum(x)


@functools.partial(jax.jit, static_argnums=1, inline=True)
def largest(x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
    """The maximum, over ``axes``, which keep the length 1, or over all elements; NaN if an element is NaN.

    XLA loses NaN in a maximum of floats: in an all-reduce (https://github.com/openxla/xla/issues/21461), and on the CPU where
    an array has 4,096 elements or more (jax 0.10.2). So it gets whole numbers in the order of the floats, with NaN the largest.
    """
    if str(x.dtype) not in _BITS:
        return jnp.max(x, axis=axes, keepdims=axes is not None)
    return _ordered_max(x, axes)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _ordered_max(x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
    whole = _BITS[str(x.dtype)]
    most = jnp.iinfo(whole).max
    bits = lax.bitcast_convert_type(x, whole)
    ordered = jnp.where(x != x, most, jnp.where(bits < 0, bits ^ most, bits))
    found = jnp.max(ordered, axis=axes, keepdims=axes is not None)
    return lax.bitcast_convert_type(jnp.where(found < 0, found ^ most, found), x.dtype)


@_ordered_max.defjvp
def _slope_of_max(axes: tuple[int, ...] | None, primals: tuple[Any], tangents: tuple[Any]) -> tuple[Tensor, Tensor]:
    """The mean of the derivatives of all elements that are the largest, as ``jnp.max`` has it."""
    (x,), (move,) = primals, tangents
    found = _ordered_max(x, axes)
    is_largest = (x == found).astype(x.dtype)
    total = functools.partial(jnp.sum, axis=axes, keepdims=axes is not None)
    return found, total(move * is_largest) / total(is_largest)
