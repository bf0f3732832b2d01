"""What is made of dense Paddle tensors in the host's memory, as new tensors and in place. No backend itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import _C_ops

from gradclip.backend import Tensor
from gradclip.backends import host, kernels
from gradclip.backends import paddle_memory as memory
from gradclip.backends.threads import allowed

__all__ = ["clamp_", "clamped", "knows", "scale_", "scaled"]

_LARGE = 1 << 20  # elements from which on new memory is made by NumPy
_STACKED = 1 << 10, 1 << 17  # the elements of a small one, and of all that are stacked at once
#: how NumPy's arrays become tensors of these dtypes
_STORED = {**memory.NUMPY, id(paddle.float16): np.float16, id(paddle.bfloat16): np.uint16}


class _Way(NamedTuple):
    """How new tensors are made of some, by numbers, each one for all or a list of one for each."""

    loop: Any  #: compiled
    operations: Callable[..., list[Tensor]]  #: Paddle's


def _products(tensors: Sequence[Tensor], factors: list[float]) -> list[Tensor]:
    # with a bias of 0 the product would be 0 where it is -0
    return list(map(_C_ops.scale, tensors, factors, itertools.repeat(-0.0), itertools.repeat(True)))


_MULTIPLY = _Way(kernels.multiply, _products)


def knows(x: Tensor) -> bool:
    """Whether :func:`scaled` and :func:`clamped` are for plain tensors of the dtype of this one."""
    return bool(kernels.KINDS) or memory.numpy_dtype(x) is not None


def scaled(tensors: Sequence[Tensor], coefficients: list[float]) -> list[Tensor]:
    """A new ``x * coefficient`` for each of some plain tensors, by coefficients that float32 holds."""
    return _scaled(tensors, memory.shapes(tensors), coefficients)


def _scaled(tensors: Sequence[Tensor], shapes: list[Any], coefficients: list[float]) -> list[Tensor]:
    return _made(_MULTIPLY, tensors, shapes, [coefficients])


def _in_order(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors, a copy of one that is transposed."""
    return tensors if all(map(paddle.Tensor.is_contiguous, tensors)) else [x.contiguous() for x in tensors]


def clamped(tensors: Sequence[Tensor], lower: float, upper: float, keep: bool) -> list[Tensor]:
    """``max(min(x, upper), lower)`` for each of some plain tensors.

    A new tensor, or with ``keep`` and the compiled loops the same one where nothing of it is clipped.
    """
    bounds = lower, max(lower, upper)
    operation, _ = _clip(memory.numpy_dtype(tensors[0]))
    way = _Way(kernels.clamp, lambda some, *bounds: [operation(x, *bounds) for x in some])
    kind = memory.kind_of_plain(tensors)
    if not keep:  # one by one: rows count together how often they are written, which a derivative looks at
        return _made_apart(way, tensors, memory.shapes(tensors), bounds)
    if kind is None or not _fit(tensors[:1], kind, bounds)[0]:  # where that does not fit, hardly any does
        return _made(way, tensors, memory.shapes(tensors), bounds)
    fit = [True, *_fit(tensors[1:], kind, bounds)]
    rest = [x for x, fits in zip(tensors, fit, strict=True) if not fits]
    made = iter(_made(way, rest, memory.shapes(rest), bounds))
    return [x if fits else next(made) for x, fits in zip(tensors, fit, strict=True)]


def _fit(tensors: Sequence[Tensor], kind: int, bounds: tuple[float, float]) -> list[bool]:
    return kernels.fit(memory.addresses(tensors), memory.sizes(tensors), kind, *bounds, allowed)


def _made(way: _Way, tensors: Sequence[Tensor], shapes: list[Any], numbers: Sequence[Any]) -> list[Tensor]:
    """New tensors; small ones of one shape as the rows of a tensor, in half the time of one by one."""
    if len(tensors) < memory.ALIKE or not kernels.KINDS or not all(map(paddle.Tensor.is_contiguous, tensors)):
        return _made_apart(way, tensors, shapes, numbers)
    made: list[Tensor] = [None] * len(tensors)
    alone, stacks = memory.alike(shapes, *_STACKED)
    for places in (alone, *stacks):
        some, of_some = [tensors[i] for i in places], [shapes[i] for i in places]
        each = [[n[i] for i in places] if isinstance(n, list) else n for n in numbers]
        found = _made_apart(way, some, of_some, each) if places is alone else _rows(way.loop, some, each)
        for i, x in zip(places, found, strict=True):
            made[i] = x
    return made


def _rows(loop: Any, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> list[Tensor]:
    """The results of a compiled loop for contiguous tensors of one shape, as the rows of a new one."""
    like, count = tensors[0], len(tensors)
    whole = _C_ops.empty([count, *like.shape], like.dtype, like.place)
    size, first = math.prod(like.shape), whole.data_ptr()
    step = size * like.element_size()
    rows = list(range(first, first + count * step, step))
    loop(rows, memory.addresses(tensors), [size] * count, memory.kind_of_plain(tensors), *numbers)
    return list(_C_ops.unbind(whole, 0))


def _made_apart(way: _Way, tensors: Sequence[Tensor], shapes: list[Any], numbers: Sequence[Any]) -> list[Tensor]:
    """New tensors by an operation of Paddle's; those of half precision, and where one is large, by a compiled loop."""
    sizes = list(map(math.prod, shapes))
    if not tensors or (max(sizes) < _LARGE and memory.numpy_dtype(tensors[0])) or not kernels.KINDS:
        return way.operations(tensors, *numbers)
    tensors, kind = _in_order(tensors), memory.kind_of_plain(tensors)
    dtype, place = tensors[0].dtype, tensors[0].place
    # large new memory of NumPy's is several times as fast, because it asks for large pages
    made = [
        _C_ops.empty_like(x, dtype, place)
        if size < _LARGE
        else paddle.Tensor(host.new(x.shape, _STORED[id(dtype)]), place=place, zero_copy=True)
        for x, size in zip(tensors, sizes, strict=True)
    ]
    way.loop(memory.addresses(made), memory.addresses(tensors), sizes, kind, *numbers, threads=allowed)
    return made


def _clip(dtype: Any) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The operations to clip, into a new tensor and in place."""
    # in half the time, with bounds in float32; as the other it leaves NaN and -0
    return (_C_ops.clip, _C_ops.clip_) if dtype is np.float64 else (_C_ops.hardtanh, _C_ops.hardtanh_)


def scale_(tensors: Sequence[Tensor], coefficient: float, kind: int | None) -> None:
    """``x *= coefficient`` for each of some tensors, of a dtype as the compiled loops call it."""
    if not _write_compiled(kernels.multiply, tensors, kind, coefficient):
        _write(tensors, _C_ops.scale_, coefficient, -0.0, True)


def clamp_(tensors: Sequence[Tensor], lower: float, upper: float) -> None:
    """``x = max(min(x, upper), lower)`` for each of some plain tensors."""
    if not _write_compiled(kernels.clamp, tensors, memory.kind_of_plain(tensors), lower, max(lower, upper)):
        _write(tensors, _clip(memory.numpy_dtype(tensors[0]))[1], lower, max(lower, upper))


def _write(tensors: Sequence[Tensor], operation: Callable[..., Any], *arguments: Any) -> None:
    """An operation in place; of half precision in float32, a block at a time."""
    is_half = memory.numpy_dtype(tensors[0]) is None
    for x in tensors:
        if not is_half:
            operation(x, *arguments)
            continue
        for block in memory.blocks(x):
            wide = _C_ops.cast(block, paddle.float32)
            operation(wide, *arguments)
            block.copy_(_C_ops.cast(wide, x.dtype), True)


def _write_compiled(loop: Any, tensors: Sequence[Tensor], kind: int | None, *numbers: float) -> bool:
    """A compiled loop in place, where there is one."""
    if kind is None:
        return False
    addresses = memory.addresses(tensors)
    loop(addresses, addresses, memory.sizes(tensors), kind, *numbers, threads=allowed)
    for x in tensors:
        x._bump_inplace_version()  # as Paddle's own functions in place do
    return True
