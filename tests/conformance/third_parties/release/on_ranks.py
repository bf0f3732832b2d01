"""accelerate's clip on several ranks, with FSDP2.

``PYTHONPATH=tests:tests/support gradclip conformance on_ranks.py:clip --ranks 2``
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any


@functools.cache
def accelerator() -> Any:
    return importlib.import_module("conformance.third_parties.release.accelerate_fsdp2").accelerator()


def clip(parameters: Sequence[Any], max_norm: float, norm_type: float = 2.0) -> Any:
    return accelerator().clip_grad_norm_(parameters, max_norm, norm_type=norm_type)
