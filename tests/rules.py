"""Example rules: a test chooses by what a rule does, so that a new kind of rule reaches every test that it fits."""

from __future__ import annotations

import math
from collections.abc import Callable

from gradclip import Rule
from gradclip.dialects import keras, optax, tensorflow, torch

Make = Callable[[float], Rule]  #: limit -> rule

#: one for each way to measure and to scale
RULES: dict[str, Make] = {
    "global": torch.clip_grad_norm,
    "global, p = 1": lambda limit: torch.clip_grad_norm(limit, 1.0),
    "global, p = 3": lambda limit: torch.clip_grad_norm(limit, 3.0),
    "global, p = inf": lambda limit: torch.clip_grad_norm(limit, math.inf),
    "global, p = -1": lambda limit: torch.clip_grad_norm(limit, -1.0),
    "each": keras.clipnorm,
    "each root mean square": optax.clip_by_block_rms,
    "value": lambda limit: tensorflow.clip_by_value(-limit, limit / 2),
}


def rules(fits: Callable[[Rule], bool] = lambda rule: True) -> dict[str, Make]:
    """Return the examples whose rules fit."""
    return {name: make for name, make in RULES.items() if fits(make(1.0))}
