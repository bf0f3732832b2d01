"""A norm as the native returns it, for all drop-ins."""

from __future__ import annotations

from typing import Any

from gradclip import registry
from gradclip.dtypes import promote
from gradclip.gradients import Gradients

__all__ = ["native_norm"]


def native_norm(opened: Gradients, norm: Any, home: str) -> Any:
    """A norm as a 0-d tensor of the gradients' framework and widest dtype, on the device of the first.

    Without gradients it is a float32 zero of the function's own framework, or a Python float if that framework is not
    imported.
    """
    present = opened.present
    if not present and norm != 0:  # the norm of other processes' gradients, in its dtype there
        present = [owner for owner in opened.owners if owner is not None]
    if opened.backend is not None and present:
        dtype = opened.lane.dtype or promote([opened.backend.dtype(x) for x in present])
        return opened.backend.asarray(norm, dtype, present[0])
    backend = opened.backend or registry.home(home)
    return norm if backend is None else backend.asarray(norm, "float32", None)
