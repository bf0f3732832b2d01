"""The norm that a drop-in returns."""

from __future__ import annotations

from typing import Any

from gradclip.core import registry
from gradclip.core.dtypes import norm_dtype
from gradclip.core.gradients import Gradients
from gradclip.core.result import Outcome, dtype_of_all

__all__ = ["as_tensor"]


def as_tensor(opened: Gradients, found: Outcome, home: str) -> Any:
    """The norm as a 0-d tensor of the gradients' framework, on the device of the first, of at least float32.

    Without gradients it is a float32 zero of the function's own framework, or a Python float if that framework is not
    imported.
    """
    norm, present = found.norm, opened.present
    if not present and norm != 0:  # the norm of other processes' gradients
        present = [param for param in opened.params if param is not None]
    if opened.backend is not None and present:
        dtype = dtype_of_all(opened) if found.is_shared else norm_dtype(opened.dtypes)
        made = opened.backend.asarray(norm, dtype, present[0])
        return made if opened.lane.dtype else opened.backend.distributed.as_native(made, present)
    backend = opened.backend or registry.home(home)
    return norm if backend is None else backend.asarray(norm, "float32", None)
