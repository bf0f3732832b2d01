"""accelerate's clip on several ranks, as DTensors reach it under FSDP2: ``gradclip conformance on_ranks.py:clip --ranks 2``."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any


@functools.cache
def accelerator() -> Any:
    return importlib.import_module("accelerate").Accelerator(cpu=True)


def clip(parameters: Sequence[Any], max_norm: float, norm_type: float = 2.0) -> Any:
    return accelerator().clip_grad_norm_(parameters, max_norm, norm_type=norm_type)
