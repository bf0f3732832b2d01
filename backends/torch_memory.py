"""Dense PyTorch tensors in the host's memory, which the compiled loops read and write by their addresses. No backend itself."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch

from gradclip.backend import Tensor
from gradclip.backends import kernels
from gradclip.backends.threads import OpenMP
from gradclip.norms import combine

_THREADS = OpenMP(torch.get_num_threads)
_ROW = 256  # elements to a float32 sum: 2 ulp for equal elements, where 4096 are off by 28
_MANY = 1 << 20  # elements whose powers are made at once, so that they never take much memory
_DTYPE = operator.attrgetter("dtype")
_KINDS = {getattr(torch, name): kind for name, kind in kernels.KINDS.items()}
TYPES = {torch.Tensor, torch.nn.Parameter}  #: those that are nothing but memory


def is_dense(x: Tensor) -> bool:
    """Whether the elements of a strided tensor fill one piece of memory: in order, channels last, or transposed."""
    if x.layout != torch.strided:
        return False
    return x.is_contiguous() or kernels.fills(x.stride(), x.shape)


def kind_of(tensors: Sequence[Tensor], plain: str = "") -> int | None:
    """The dtype that concrete tensors have in common, as the compiled loops call it; None where these are of no use.

    They are of none where operations are traced, or a dispatch mode wants to see each. ``plain`` is what
    :meth:`gradclip.Backend.plain` says of the tensors.
    """
    dtypes = set(map(_DTYPE, tensors)) if kernels.KINDS else ()
    if len(dtypes) != 1 or not tensors[0].is_cpu or torch._C._len_torch_dispatch_stack() or torch.jit.is_tracing():
        return None
    kind = _KINDS.get(dtypes.pop())
    if plain or kind is None:
        return kind
    is_memory = set(map(type, tensors)) <= TYPES and all(map(is_dense, tensors)) and 0 not in _addresses(tensors)
    return kind if is_memory else None


def are_as_stored(tensors: Sequence[Tensor], sizes: Sequence[int]) -> bool:
    """Whether the memory of dense tensors holds their values, and not the negatives, as of a conjugate's imaginary part."""
    return 1 not in sizes or not any(map(torch.Tensor.is_neg, tensors))  # a longer part is not dense


def sizes_of(tensors: Sequence[Tensor]) -> list[int]:
    """The numbers of their elements."""
    return list(map(torch.Tensor.numel, tensors))


def squares(tensors: Sequence[Tensor], kind: int) -> list[float]:
    """The sum of the squares of each."""
    return kernels.squares(_addresses(tensors), sizes_of(tensors), kind, _THREADS)


def multiply_(tensors: Sequence[Tensor], kind: int, coefficient: float) -> None:
    """``x *= coefficient`` for each, by a coefficient that float32 holds."""
    multiply(tensors, tensors, kind, coefficient)
    torch.autograd.graph.increment_version(tensors)


def multiplied(tensors: Sequence[Tensor], kind: int, coefficient: float | list[float]) -> list[Tensor]:
    """A new ``x * coefficient`` for each, or by its own of a list."""
    made = list(map(torch.empty_like, tensors))
    multiply(made, tensors, kind, coefficient)
    return made


def multiply(made: Sequence[Tensor], tensors: Sequence[Tensor], kind: int, coefficient: float | list[float]) -> None:
    """The same into others, or into themselves without a word to autograd."""
    addresses = _addresses(tensors)
    written = addresses if made is tensors else _addresses(made)
    kernels.multiply(written, addresses, sizes_of(tensors), kind, coefficient, _THREADS)


def clamp(tensors: Sequence[Tensor], sizes: list[int], kind: int, lower: float, upper: float) -> None:
    """``x = max(min(x, upper), lower)`` for each, without a word to autograd."""
    addresses = _addresses(tensors)
    kernels.clamp(addresses, addresses, sizes, kind, lower, upper, _THREADS)


def by_rows(x: Tensor, order: float) -> float:
    """The norm of a large dense tensor, of a finite order, from the sums of short rows: torch's own are running sums."""
    line = x.view(-1) if x.is_contiguous() else x.as_strided((x.numel(),), (1,))
    norms = []
    for block in line.split(_MANY):
        powers = block.float().abs().pow_(order) if order != 1 else block.float().abs()
        whole = powers.numel() - powers.numel() % _ROW
        rows = torch.cat([powers[:whole].view(-1, _ROW).sum(1), powers[whole:]])
        norms.append(float(rows.sum(dtype=torch.float64)) ** (1 / order))
    return combine(norms, order)


def _addresses(tensors: Sequence[Tensor]) -> list[int]:
    return list(map(torch.Tensor.data_ptr, tensors))
