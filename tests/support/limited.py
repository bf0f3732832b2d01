"""Every limit that follows a run, with a short warm-up, for the tests of the optimizers' slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradclip import limits

ALL: dict[str, Callable[[], Any]] = {
    "quantile": lambda: limits.quantile(0.7, warmup=6),
    "autoclip": lambda: limits.autoclip(30, warmup=5),
    "zclip": lambda: limits.zclip(warmup=8),
    "log_norm": lambda: limits.log_norm(warmup=8),
    "deviations": lambda: limits.deviations(1.0, window=16, warmup=8, at_first=1.0),
    "spike": lambda: limits.spike(1.2, warmup=8, at_first=1.0),
    "schedule": lambda: limits.schedule(lambda step: 2.0 + step),
    "adagc": lambda: limits.adagc(warmup=6),
}
