"""The norm of an array in the host's memory, for the backends whose tensors NumPy reads without a copy. No backend itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_BLOCK = 256  # elements to a sum in their own dtype: 1 ulp for equal elements, where 4096 are off by 15, and no slower

_LEAST, _MOST = 2.0**-30, 2.0**30  # between them no float32 square has overflowed, or vanished that matters


def norm(x: np.ndarray[Any, Any], order: float) -> float | None:
    """The norm of all elements, as :meth:`gradclip.Backend.fast_norm` describes; None for an order that is no number."""
    if order != order:
        return None
    flat = np.ravel(x)
    with np.errstate(all="ignore"):
        if order == 2.0:
            return _euclidean(flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat)
        magnitude = np.abs(flat)
        if order == math.inf:
            return float(np.max(magnitude))
        if order == 1.0:
            return float(np.sum(magnitude, dtype=np.float64))
        return float(np.linalg.norm(magnitude.astype(np.float64), order))


def _euclidean(flat: np.ndarray[Any, Any]) -> float:
    if flat.dtype.itemsize < 4:
        flat = flat.astype(np.float32)
    whole = flat.size - flat.size % _BLOCK
    rows, rest = flat[:whole].reshape(-1, _BLOCK), flat[whole:].astype(np.float64)
    result = math.sqrt(float(np.sum(np.vecdot(rows, rows), dtype=np.float64)) + float(np.dot(rest, rest)))
    if flat.dtype != np.float64 and not _LEAST < result < _MOST:  # squares that left float32, or an infinity, or zeros
        wide = flat.astype(np.float64)
        return math.sqrt(float(np.dot(wide, wide)))
    return result
