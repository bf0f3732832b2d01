"""Limits that follow the run: pure functions that return a limit for a state, and the next state for a norm."""

from gradclip.limits.adaptive import Adaptive
from gradclip.limits.arithmetic import numbers, tensors
from gradclip.limits.protocol import Following, Limit
from gradclip.limits.published import adagc, autoclip, log_norm, quantile, schedule, zclip
from gradclip.limits.spikes import deviations, spike

__all__ = [
    "Adaptive",
    "Following",
    "Limit",
    "adagc",
    "autoclip",
    "deviations",
    "log_norm",
    "numbers",
    "quantile",
    "schedule",
    "spike",
    "tensors",
    "zclip",
]
