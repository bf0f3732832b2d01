"""The norm of an array in the host's memory, for the backends whose tensors NumPy reads without a copy. No backend itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_BLOCK = 256  # elements to a sum in their own dtype: 1 ulp for equal elements, where 4096 are off by 15, and no slower


def norm(x: np.ndarray[Any, Any], order: float) -> float | None:
    """The norm of all elements, accurate however many there are; None for an order that is no number.

    Overflow is the caller's business, as in :meth:`gradclip.Backend.fast_norm`.
    """
    if order != order:
        return None
    flat = np.ravel(x)
    if order == 2.0 and flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    elif flat.dtype.itemsize < 4:
        flat = flat.astype(np.float32)
    with np.errstate(all="ignore"):  # what overflows here is measured again with care
        if order == 2.0:
            whole = flat.size - flat.size % _BLOCK
            rows, rest = flat[:whole].reshape(-1, _BLOCK), flat[whole:].astype(np.float64)
            return math.sqrt(float(np.sum(np.vecdot(rows, rows), dtype=np.float64)) + float(np.dot(rest, rest)))
        magnitude = np.abs(flat)
        if order == math.inf:
            return float(np.max(magnitude))
        if order == 1.0:
            return float(np.sum(magnitude, dtype=np.float64))
        return float(np.linalg.norm(magnitude.astype(np.float64), order))
