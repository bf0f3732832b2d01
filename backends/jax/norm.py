"""Euclidean norms in compiled JAX: one read of the gradients, and right also where squares overflow or vanish.

It reads no value. On the host, if squares may have overflowed or vanished, a rarely taken branch of the compiled function
computes the norm again, in float64 or with a scale. On an accelerator a branch would wait for the host, and float64 may be
slow: there squares overflow float32 as they do in optax.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gradclip.backend import Tensor
from gradclip.backends.jax.places import compiles_for_host, has_float64
from gradclip.backends.jax.versions import ADDS_ALONG_AN_AXIS, ADDS_IN_A_ROW, HAS_RULES_IN_SHARD_MAP, enable_x64
from gradclip.dtypes import COMPLEX, WIDE

__all__ = ["axis_sum", "each", "real", "total", "tree_sum"]

_FEW, _TOGETHER = 1 << 12, 64  # elements up to which a tensor is small; small tensors that are summed as one
_LANES = 8  # parallel sums; XLA adds up no more than 32 numbers in one step
_SOME, _ADDED = 1 << 17, 16  # elements up to which a sum costs a call; tensors whose squares are added
_LARGE = 1 << 20  # elements that one check covers
#: dtype of a norm -> (least, most): in a norm between them no square that matters overflowed or vanished, of up to 2**30
_RANGE = {"float32": (2.0**-30, 2.0**60), "float64": (2.0**-450, 2.0**500)}


def real(x: Tensor) -> str:
    """The dtype of the norm of a tensor: at least float32."""
    wide = WIDE[str(x.dtype)]
    return COMPLEX.get(wide, wide)


@functools.partial(jax.jit, inline=True)
def each(tensors: list[Tensor]) -> list[Tensor]:
    """The norm of each of several tensors whose norms have one dtype; its derivative is 0 at 0."""
    norms: list[Tensor] = _norms(tensors, False)
    return norms


@functools.partial(jax.jit, inline=True)
def total(tensors: list[Tensor]) -> Tensor:
    """The norm over all of several tensors whose norms have one dtype; its derivative is 0 at 0."""
    return _norms(tensors, True)[0]


@functools.partial(jax.jit, inline=True)  # for an array on several processes without jit: one program, which all run together
def tree_sum(x: Tensor) -> Tensor:
    """The sum of all elements. For few elements it is careful: XLA adds those up in a row, and is off by 11 ulp after 1,000.

    It sums the leading bits separately, without rounding, because so few bits fit into a number. Unlike a sum in pairs
    it does not split an array, which may be sharded over devices.
    """
    if not isinstance(x.size, int) or not 2 < x.size <= _FEW or jnp.iscomplexobj(x):
        return jnp.sum(_as_one_axis(x))
    constant = lax.stop_gradient(x)
    largest = jnp.max(jnp.abs(constant))
    quantum = jnp.ldexp(jnp.ones_like(largest), jnp.frexp(largest)[1] - 12)
    quantum = jnp.where((largest > jnp.finfo(x.dtype).tiny * 2.0**32) & (largest < np.inf), quantum, 0)
    total = jnp.zeros_like(largest)
    for _ in range(2):
        leading = jnp.where(quantum > 0, jnp.round(constant / quantum) * quantum, 0)
        total, constant, x, quantum = total + jnp.sum(leading), constant - leading, x - leading, quantum * 2.0**-13
    return total + jnp.sum(x)


def axis_sum(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The sum along axes, which keep the length 1."""
    if not ADDS_ALONG_AN_AXIS or x.dtype != np.float32 or not has_float64():
        return jnp.sum(x, axis=axes, keepdims=True)
    with enable_x64(True):
        return jnp.sum(x, axis=axes, keepdims=True, dtype="float64").astype("float32")


def _as_one_axis(x: Tensor, rows: int = 0) -> Tensor:
    """The array for a sum over all but the first axes. Several devices would have to exchange elements of a flat one."""
    return _flat(x, rows) if ADDS_IN_A_ROW and isinstance(x.size, int) and jax.device_count() == 1 else x


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _norms(tensors: list[Tensor], is_total: bool) -> list[Tensor]:
    norms: list[Tensor] = (_total if is_total else _each)(0)(tensors)
    return norms


def _by_rows(compute: Callable[[list[Tensor], int], list[Tensor]]) -> Callable[[int], Callable[[list[Tensor]], list[Tensor]]]:
    """Wrap a function of tensors and ``rows``: their first ``rows`` axes are axes of ``vmap``, and the results keep them.

    vmap alone would turn a branch into a select and always compute both sides; this branches once for all rows.
    """

    @functools.cache
    def after(rows: int) -> Any:
        if not HAS_RULES_IN_SHARD_MAP:
            return lambda tensors: compute(tensors, rows)
        function = jax.custom_batching.custom_vmap(lambda tensors: compute(tensors, rows))

        @function.def_vmap
        def mapped(size: int, is_mapped: list[list[bool]], tensors: list[Tensor]) -> tuple[list[Tensor], list[bool]]:
            pairs = zip(tensors, is_mapped[0], strict=True)
            norms = after(rows + 1)([x if this else jnp.broadcast_to(x, (size, *x.shape)) for x, this in pairs])
            return norms, [True] * len(norms)

        return function

    return after


@_by_rows
def _total(tensors: list[Tensor], rows: int) -> list[Tensor]:
    parts = _joined(tensors, rows)
    squares = [_squares(x, rows) for x in parts]
    of_all = sum(squares[1:], squares[0])
    if all(map(_is_safe, parts)):
        return [jnp.sqrt(of_all)]
    return _checked([of_all], lambda: [_careful_total(parts, rows)], parts[0])


@_by_rows
def _each(tensors: list[Tensor], rows: int) -> list[Tensor]:
    norms: list[Any] = [_wide_norm(x, rows) if _are_few(x) else None for x in tensors]
    for group in _groups([i for i, n in enumerate(norms) if n is None], tensors):
        parts = [tensors[i] for i in group]
        squares = [_squares(x, rows) for x in parts]
        if _is_safe(parts[0]):
            found = list(map(jnp.sqrt, squares))
        else:
            found = _checked(squares, functools.partial(_careful, parts, rows), parts[0])
        for i, n in zip(group, found, strict=True):
            norms[i] = n
    return norms


def _are_few(x: Tensor) -> bool:
    """Whether the wide norm costs less than a branch; for a large tensor in memory it would take twice as long."""
    return has_float64() and isinstance(x.size, int) and x.size <= _FEW and real(x) == "float32"


def _wide_norm(x: Tensor, rows: int) -> Tensor:
    """The norm in float64, even if JAX's float64 is off: there no square of a float32 overflows or vanishes."""
    with enable_x64(True):
        if not _is_movable(x, _FEW) or math.prod(x.shape[rows:]) % _LANES:
            return jnp.sqrt(_squares(x, rows, "float64")).astype("float32")
        # XLA adds few squares one after the other, each waiting for the one before
        parts = jnp.split(jnp.square(_flat(x, rows).astype("float64")), _LANES, axis=-1)
        return jnp.sqrt(jnp.sum(sum(parts[1:], parts[0]), -1)).astype("float32")


# XLA does some work in each call for every sum in a program, also in a branch that is not taken: for hundreds of tensors, a
# tenth of the time of all their norms. So the rare branch uses few sums.


def _rare_norm(x: Tensor, rows: int) -> Tensor:
    """The wide norm, of a small tensor as a product of matrices."""
    if not _is_movable(x, _SOME) or math.prod(x.shape[rows:]) % 2:
        return _wide_norm(x, rows)
    with enable_x64(True):
        halves = jnp.reshape(x, (*x.shape[:rows], 2, math.prod(x.shape[rows:]) // 2)).astype("float64")
        axes = tuple(range(rows))
        products = lax.dot_general(halves, halves, (((rows + 1,),) * 2, (axes, axes)), precision="highest")
        return jnp.sqrt(products[..., 0, 0] + products[..., 1, 1]).astype("float32")


def _rare_total(tensors: Sequence[Tensor], rows: int) -> Tensor:
    """The wide norm over all, the squares of several small tensors of one size added element by element."""
    alike: dict[Any, list[Tensor]] = {}
    for i, x in enumerate(tensors):
        alike.setdefault((x.size, i // _ADDED) if _is_movable(x, _SOME) else i, []).append(x)
    with enable_x64(True):
        sums = []
        for group in alike.values():
            if len(group) == 1:
                sums.append(_squares(group[0], rows, "float64"))
            else:
                added = [jnp.square(_flat(x, rows).astype("float64")) for x in group]
                sums.append(jnp.sum(sum(added[1:], added[0]), -1))
        return jnp.sqrt(sum(sums[1:], sums[0])).astype("float32")


def _flat(x: Tensor, rows: int) -> Tensor:
    return jnp.reshape(x, (*x.shape[:rows], math.prod(x.shape[rows:])))


def _is_movable(x: Tensor, most: int) -> bool:
    """Whether it is a small tensor of floats, and certainly on one device; several devices would have to exchange elements."""
    is_small = isinstance(x.size, int) and x.size <= most
    return is_small and not jnp.iscomplexobj(x) and jax.device_count() == 1


def _checked(squares: list[Tensor], carefully: Callable[[], list[Tensor]], like: Tensor) -> list[Tensor]:
    """The roots of sums of squares; on the host computed in another way if one of them may be wrong."""
    if not compiles_for_host():
        return list(map(jnp.sqrt, squares))
    least, most = _RANGE[real(like)]
    is_right = functools.reduce(operator.and_, [(s > least**2) & (s < most**2) for s in squares])
    checked: list[Tensor] = lax.cond(jnp.all(is_right), lambda: list(map(jnp.sqrt, squares)), carefully)
    return checked


@_norms.defjvp
def _slopes(is_total: bool, primals: tuple[Any], tangents: tuple[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """The derivative is the tensor divided by its norm, which fits every dtype."""
    (tensors,), (moves,) = primals, tangents
    norms = _norms(tensors, is_total)
    divisors = [jnp.where(n > 0, n, 1.0) for n in norms] * (len(tensors) if is_total else 1)
    slopes = list(map(_slope, tensors, moves, divisors))
    return norms, [sum(slopes[1:], slopes[0])] if is_total else slopes


def _slope(x: Tensor, move: Tensor, divisor: Tensor) -> Tensor:
    pairs = ((x.real, move.real), (x.imag, move.imag)) if jnp.iscomplexobj(x) else ((x, move),)
    terms = [jnp.sum(p.astype(divisor.dtype) / divisor * m.astype(divisor.dtype)) for p, m in pairs]
    return sum(terms[1:], terms[0])


def _joined(tensors: Sequence[Tensor], rows: int) -> list[Tensor]:
    """The tensors, with small ones joined; not if they may be sharded over devices, which would have to exchange them."""
    is_small = [_is_movable(x, _FEW) for x in tensors]
    small = [x for x, this in zip(tensors, is_small, strict=True) if this]
    if len(small) < 2:
        return list(tensors)
    joined = [x for x, this in zip(tensors, is_small, strict=True) if not this]
    for i in range(0, len(small), _TOGETHER):
        flat = [_flat(x, rows).astype(real(x)) for x in small[i : i + _TOGETHER]]
        joined.append(jnp.concatenate(flat, axis=rows))
    return joined


def _squares(x: Tensor, rows: int, dtype: str = "") -> Tensor:
    """The sum of the squares over all but the first axes."""
    if x.dtype == jnp.bfloat16 and compiles_for_host():
        # a sum converts as it reads; if the scaling also needs the converted tensor, XLA would write it to memory for both
        x = lax.optimization_barrier(x)
    x = _as_one_axis(x, rows)
    parts = (x.real, x.imag) if jnp.iscomplexobj(x) else (x,)
    axes = tuple(range(rows, x.ndim))
    sums = [jnp.sum(jnp.square(part.astype(dtype or real(x))), axes) for part in parts]
    return sum(sums[1:], sums[0])


def _is_safe(x: Tensor) -> bool:
    """Whether no square that matters can overflow or vanish."""
    return 0 in x.shape or x.dtype == np.float16


def _careful(parts: Sequence[Tensor], rows: int) -> list[Tensor]:
    """The norms in a rarely taken branch."""
    return [_rare_norm(x, rows) if real(x) == "float32" and has_float64() else _divided_norm(x, rows) for x in parts]


def _careful_total(parts: Sequence[Tensor], rows: int) -> Tensor:
    if real(parts[0]) == "float32" and has_float64():
        return _rare_total(parts, rows)
    # without the barrier XLA gathers the vector again at each use, and compiles for minutes
    return _divided_norm(lax.optimization_barrier(jnp.stack(_careful(parts, rows), axis=-1)), rows)


def _divided_norm(x: Tensor, rows: int) -> Tensor:
    """The norm of ``x``; ``x`` is divided by its largest magnitude before squaring, so no square overflows or vanishes."""
    x = _as_one_axis(x, rows)
    axes = tuple(range(rows, x.ndim))
    magnitude = jnp.abs(x).astype(real(x))
    largest = jnp.max(magnitude, axes, keepdims=True, initial=0)
    unit = jnp.where((largest > 0) & (largest < np.inf), largest, 1.0)
    return jnp.squeeze(unit, axes) * jnp.sqrt(jnp.sum(jnp.square(magnitude / unit), axes))


def _groups(positions: Sequence[int], tensors: Sequence[Tensor]) -> list[list[int]]:
    """The positions of the tensors, in lists that one check covers: several small tensors, or a large one.

    Hundreds of branches would take long to compile; with one branch a gradient of zeros would cause a second read of all.
    """
    groups: list[list[int]] = []
    room = 0
    for i in positions:
        x = tensors[i]
        size = x.size if isinstance(x.size, int) and not _is_safe(x) else _LARGE
        if size > room:
            groups.append([])
            room = _LARGE
        groups[-1].append(i)
        room -= size
    return groups
