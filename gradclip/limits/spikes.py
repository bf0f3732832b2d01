"""Limits for spikes: a norm far above the usual ones, which ``skip_above`` skips or a limit clips."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gradclip.core.errors import ArgumentError, shown
from gradclip.limits.arithmetic import Floats, Tensors
from gradclip.limits.protocol import Following, State

__all__ = ["Deviations", "Spike", "deviations", "spike"]


class Deviations(Following):
    """Mean and deviation of the last norms; see :func:`deviations`."""

    wholes = (*Following.wholes, "at", "filled")

    def __init__(self, deviations: float, window: int, **shared: Any) -> None:
        super().__init__(winsor=1.0, **shared)
        known: object = window
        if not deviations > 0 or not isinstance(known, int) or known < 2:
            what = "deviations must be positive, and window a whole number from 2 on."
            raise ArgumentError(what, f"deviations={shown(deviations)}, window={shown(window)}")
        self.deviations, self.window = float(deviations), window

    def blank(self) -> State:
        return {"at": 0.0, "filled": 0.0, "norms": [0.0] * self.window}

    def range_of(self, name: str) -> tuple[float, float]:
        most = {"at": self.window - 1.0, "filled": float(self.window)}
        return 0.0, most.get(name, math.inf)

    def known(self, ops: Floats | Tensors, state: Mapping[str, Any]) -> Any:
        mean, deviation = ops.mean_and_deviation(state["norms"], state["filled"], self.window)
        return mean + self.deviations * ops.most(deviation, mean * 1e-6)

    def learn(self, ops: Floats | Tensors, state: Mapping[str, Any], norm: Any) -> State:
        after = state["at"] + 1
        return {
            "at": ops.where(after >= self.window, 0.0, after),
            "filled": ops.least(state["filled"] + 1, float(self.window)),
            "norms": ops.placed(state["norms"], state["at"], norm, self.window),
        }


def deviations(
    deviations: float = 6.0,
    *,
    window: int = 128,
    warmup: int = 64,
    at_first: float = math.inf,
    patience: int = 100,
) -> Deviations:
    """OLMo-core's policy for spikes: ``mean + 6 * deviation`` of the last 128 norms.

    Made for ``skip_above``: ``dataclasses.replace(rule, skip_above=gradclip.Adaptive(limits.deviations()))``.

    Source: ``SkipStepOptimizer`` of github.com/allenai/OLMo-core, with its window of 128 norms, its sample deviation, and no
    skip among the first 64 norms. There the loss is held against the same bound, and a norm as far *below* the mean skips a
    step too. There a spike counts in full, and raises the bound for the next 128 norms; ours counts as much as the limit.
    The deviation counts as at least 1e-6 of the mean. After ``patience`` norms above the limit in a row ours starts again.

    Args:
        deviations: how many deviations above the mean.
        window: how many norms it remembers.
        warmup: the number of norms for which ``at_first`` is the limit.
        at_first: the limit during the warm-up; infinity for none.
        patience: after so many norms in a row that were not finite, or above the limit, it starts again.

    Raises:
        ValueError: for an argument out of its range.

    Example:
        >>> from gradclip import limits
        >>> limit = limits.deviations(window=8, warmup=4)
        >>> state = limit.init()
        >>> for n in range(8): state = limit.observe(state, 1.0 + n % 2)
        >>> round(limit.limit(state), 2)
        4.71
    """
    return Deviations(deviations, window, warmup=warmup, at_first=at_first, patience=patience)


class Spike(Following):
    """A multiple of the average norm; see :func:`spike`."""

    def __init__(self, factor: float, decay: float, **shared: Any) -> None:
        super().__init__(winsor=1.0, **shared)
        if not factor > 1 or not 0 < decay < 1:
            raise ArgumentError("factor must be above 1, and decay between 0 and 1.", f"factor={factor}, decay={decay}")
        self.factor, self.decay = float(factor), decay

    def blank(self) -> State:
        return {"weight": 0.0, "total": 0.0}

    def known(self, ops: Floats | Tensors, state: Mapping[str, Any]) -> Any:
        return self.factor * (state["total"] / ops.most(state["weight"], 1e-6))

    def learn(self, ops: Floats | Tensors, state: Mapping[str, Any], norm: Any) -> State:
        new = {"weight": 1.0, "total": norm}
        return {name: state[name] + (1 - self.decay) * (x - state[name]) for name, x in new.items()}


def spike(
    factor: float = 10.0, *, decay: float = 0.99, warmup: int = 20, at_first: float = math.inf, patience: int = 100
) -> Spike:
    """A spike is a norm of more than ``factor`` times the moving average of the norms.

    Made for ``skip_above``. A spike counts as much as the limit in the average.

    Args:
        factor: how many times the average.
        decay: of the average; 0.99 remembers some 100 norms.
        warmup: the number of norms for which ``at_first`` is the limit.
        at_first: the limit during the warm-up; infinity for none.
        patience: after so many norms in a row that were not finite, or above the limit, it starts again.

    Raises:
        ValueError: for an argument out of its range.

    Example:
        >>> from gradclip import limits
        >>> limit = limits.spike(3.0, warmup=4)
        >>> state = limit.init()
        >>> for n in range(8): state = limit.observe(state, 2.0)
        >>> round(limit.limit(state), 6)
        6.0
    """
    return Spike(factor, decay, warmup=warmup, at_first=at_first, patience=patience)
