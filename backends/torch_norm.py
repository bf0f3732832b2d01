"""The norm of PyTorch tensors in the host's memory: at the speed of memory, and right at any length. No backend itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._utils import _flatten_dense_tensors

from gradclip.backend import Tensor
from gradclip.norms import combine

_ROW = 256  # elements to a float32 sum: 2 ulp for equal elements, where 4096 are off by 28
FEW = 1 << 14  # up to so many elements a float64 sum is as fast, and a copy costs less than a call
_BLOCK = 1 << 20  # elements that are converted at once: fewer cost more in calls, more in memory
_BATCH = 1 << 18  # elements of small tensors that are copied at once: those stay in the cache


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
    has_halves = any(x.dtype != torch.float32 for x in tensors)
    scratch = torch.empty(min(_BLOCK, -(-sum(sizes) // _ROW) * _ROW) if has_halves else 0)
    for x, size in zip(tensors, sizes, strict=True):
        if size > FEW:
            pieces += _row_norms(x, scratch)
            continue
        batch.append(x)
        room -= size
        if room < 0:
            norms.append(_norm64(_row_norms(flat(batch), scratch)))  # at once, so that the next batch has the same memory
            batch, room = [], _BATCH
    if batch:
        pieces += _row_norms(flat(batch), scratch)
    return combine([*norms, _norm64(pieces)], 2.0) if norms else _norm64(pieces)


def _norm64(pieces: list[Tensor]) -> float:
    return float(torch.linalg.vector_norm(flat(pieces), dtype=torch.float64)) if pieces else 0.0


def _row_norms(x: Tensor, scratch: Tensor) -> list[Tensor]:
    """Float32 tensors of the same norm as a dense one, a fraction of its size if it is large."""
    size = x.numel()
    if size <= FEW:
        return [x.float()]
    line = x.view(-1) if x.is_contiguous() else x.as_strided((size,), (1,))
    whole = size - size % _ROW
    if line.dtype == torch.float32:
        norms = [torch.linalg.vector_norm(line[:whole].view(-1, _ROW), dim=1)]
    else:  # made float32 block by block, all in the same piece of memory
        blocks = (scratch[: len(block)].copy_(block).view(-1, _ROW) for block in line[:whole].split(len(scratch)))
        norms = [torch.linalg.vector_norm(rows, dim=1) for rows in blocks]
    return norms if whole == size else [*norms, line[whole:].float()]


def by_rows(x: Tensor, order: float) -> float:
    """The norm of another finite order: torch's own are running sums."""
    line = x.view(-1) if x.is_contiguous() else x.as_strided((x.numel(),), (1,))
    norms = []
    for block in line.split(_BLOCK):
        powers = block.float().abs().pow_(order) if order != 1 else block.float().abs()
        whole = powers.numel() - powers.numel() % _ROW
        rows = torch.cat([powers[:whole].view(-1, _ROW).sum(1), powers[whole:]])
        norms.append(float(rows.sum(dtype=torch.float64)) ** (1 / order))
    return combine(norms, order)
