"""The norm of PyTorch tensors in the host's memory: at the speed of memory, and right at any length. No backend itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._utils import _flatten_dense_tensors

from gradclip.backend import Tensor
from gradclip.norms import combine

_ROW = 256  # elements to a float32 sum: 2 ulp for equal elements, where 4096 are off by 28
FEW = 1 << 14  # up to so many elements a float64 sum is as fast, and a copy costs less than a call
SHORT = 1 << 11  # up to so many elements a call costs more than a sum in float64
_COPIED = 1 << 13  # up to so many elements a call costs more than a copy
_BLOCK = 1 << 17  # halves that are converted at once: fewer cost more in calls, more in memory
_BATCH = (1 << 15) - _ROW  # elements that are copied at once: in a cache, by one thread, in memory that malloc has at hand
_MANY = 1 << 20  # elements whose row norms are reduced before the next are made, so that they never take much memory


def is_dense(x: Tensor) -> bool:
    """Whether the elements of a strided tensor fill one piece of memory: in order, channels last, or transposed."""
    if x.layout != torch.strided:
        return False
    if x.is_contiguous():
        return True
    expected = 1
    for stride, length in sorted(zip(x.stride(), x.shape, strict=True)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of dense tensors, one after the other."""
    if len(tensors) == 1:
        return tensors[0]
    if len(tensors) > 99 and set(map(torch.Tensor.dim, tensors)) == {1}:
        return torch.cat(tensors)  # a third of the time: no views to make
    return _flatten_dense_tensors(tensors)


def euclidean(tensors: Sequence[Tensor], sizes: Sequence[int]) -> float:
    """The norm over dense tensors, none of float64, from those of short rows: as fast as memory, and right at any length."""
    norms: list[float] = []
    pieces: list[Tensor] = []
    batch: list[Tensor] = []
    room = _BATCH
    scratch = _scratch(tensors, sizes)
    for x, size in zip(tensors, sizes, strict=True):
        if size > _MANY:
            norms.append(_norm64(_row_norms(x, size, scratch)))
        elif size > _COPIED:
            pieces += _row_norms(x, size, scratch)
        else:
            if size > room:
                pieces += _row_norms(flat(batch), _BATCH - room, scratch)
                batch, room = [], _BATCH
            batch.append(x)
            room -= size
    if batch:
        pieces += _row_norms(flat(batch), _BATCH - room, scratch)
    return combine([*norms, _norm64(pieces)], 2.0) if norms else _norm64(pieces)


def _scratch(tensors: Sequence[Tensor], sizes: Sequence[int]) -> Tensor | None:
    """Memory for the rows of a block of halves; None where all are float32 or small."""
    is_needed = any(size > _BLOCK and x.dtype != torch.float32 for x, size in zip(tensors, sizes, strict=True))
    return torch.empty((_BLOCK // _ROW, _ROW)) if is_needed else None


def _norm64(pieces: list[Tensor]) -> float:
    if not pieces:
        return 0.0
    return float(torch.linalg.vector_norm(pieces[0] if len(pieces) == 1 else torch.cat(pieces), dtype=torch.float64))


def _row_norms(x: Tensor, size: int, scratch: Tensor | None) -> list[Tensor]:
    """Vectors of the same norm as a dense tensor, a fraction of its size unless it is short."""
    if size <= SHORT:
        return [x.view(-1) if x.is_contiguous() else x.as_strided((size,), (1,))]
    if x.is_contiguous() and not size % _ROW:
        rows, rest = x.view(-1, _ROW), []
    else:
        line = x.view(-1) if x.is_contiguous() else x.as_strided((size,), (1,))
        whole = size - size % _ROW
        rows, rest = line[:whole].view(-1, _ROW), [line[whole:]]
    if x.dtype == torch.float32 or scratch is None or size <= _BLOCK:
        return [torch.linalg.vector_norm(rows, 2, 1, dtype=torch.float32), *rest]
    # made float32 block by block, all in the same piece of memory: torch would make float32 of the whole tensor
    blocks = (scratch[: len(block)].copy_(block) for block in rows.split(_BLOCK // _ROW))
    return [torch.linalg.vector_norm(block, 2, 1) for block in blocks] + rest


def by_rows(x: Tensor, order: float) -> float:
    """The norm of another finite order: torch's own are running sums."""
    line = x.view(-1) if x.is_contiguous() else x.as_strided((x.numel(),), (1,))
    norms = []
    for block in line.split(_MANY):
        powers = block.float().abs().pow_(order) if order != 1 else block.float().abs()
        whole = powers.numel() - powers.numel() % _ROW
        rows = torch.cat([powers[:whole].view(-1, _ROW).sum(1), powers[whole:]])
        norms.append(float(rows.sum(dtype=torch.float64)) ** (1 / order))
    return combine(norms, order)
