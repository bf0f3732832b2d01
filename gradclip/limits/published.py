"""Published limits, each with its formula, its source, and how gradclip's differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.limits.arithmetic import Floats, Tensors, arithmetic
from gradclip.limits.histogram import EDGES
from gradclip.limits.protocol import Following, State

__all__ = [
    "AdaGC",
    "LogNorm",
    "Quantile",
    "Schedule",
    "ZClip",
    "adagc",
    "autoclip",
    "log_norm",
    "quantile",
    "schedule",
    "zclip",
]


class Quantile(Following):
    """A quantile of the norms so far; see :func:`quantile`."""

    def __init__(self, q: float, decay: float, **shared: Any) -> None:
        super().__init__(**shared)
        if not 0 < q < 1 or not 0 < decay <= 1:
            raise ArgumentError("q must lie between 0 and 1, and decay above 0 and at most at 1.", f"q={q}, decay={decay}")
        self.q, self.decay = q, decay

    def blank(self) -> State:
        return {"weight": 0.0, "reached": [0.0] * len(EDGES)}

    def known(self, ops: Floats | Tensors, state: Mapping[str, Any]) -> Any:
        return ops.level(state["reached"], state["weight"] * ((1 - self.q) * (1 + 1e-6)))

    def learn(self, ops: Floats | Tensors, state: Mapping[str, Any], norm: Any) -> State:
        return {
            "weight": state["weight"] * self.decay + 1.0,
            "reached": ops.reached(state["reached"], self.decay, norm),
        }


def quantile(
    q: float = 0.9,
    *,
    decay: float = 0.999,
    warmup: int = 100,
    at_first: float = 1.0,
    winsor: float = 4.0,
    patience: int = 100,
) -> Quantile:
    """A quantile of the norms so far: the default among the limits that follow a run.

    The monitor's histogram counts the norms; each new norm multiplies the weight of the earlier ones by ``decay``. The limit
    is off by at most 4.5 %. A norm counts as at most ``winsor`` times the limit.

    Args:
        q: the fraction of norms that it lets pass; 0.9 clips one step in ten.
        decay: 0.999 remembers some 1,000 steps, 1 all of them.
        warmup: the number of norms for which ``at_first`` is the limit.
        at_first: the limit during the warm-up.
        winsor: an outlier counts as this many times the limit.
        patience: after so many norms in a row that were not finite, or above ``winsor`` times the limit, it starts again.

    Raises:
        ValueError: for an argument out of its range.

    Example:
        >>> from gradclip import limits
        >>> limit = limits.quantile(0.85, warmup=10)
        >>> state = limit.init()
        >>> for n in range(100): state = limit.observe(state, 1.0 + n % 10)
        >>> round(limit.limit(state), 1)
        9.1
    """
    return Quantile(q, decay, warmup=warmup, at_first=at_first, winsor=winsor, patience=patience)


def autoclip(
    percentile: float = 10.0, *, warmup: int = 25, at_first: float = 1.0, winsor: float = 10.0, patience: int = 1000
) -> Quantile:
    """AutoClip: a percentile of the norms of all steps before this one.

    Source: Seetharaman, Wichern, Pardo, Le Roux 2020, arXiv 2007.14469, with p = 10, and github.com/pseeth/autoclip. The paper
    and its first code count the norm of the step itself; ours, as the newer ``QuantileClip``, the norms before it. The paper
    keeps every norm; ours counts them in a histogram of constant size, whose quantiles are off by at most 4.5 %. A norm counts
    as at most ``winsor`` times the limit. The paper has ``winsor`` and ``at_first`` infinite, and ``warmup=1``.
    """
    return Quantile(percentile / 100, 1.0, warmup=warmup, at_first=at_first, winsor=winsor, patience=patience)


class ZClip(Following):
    """Mean and deviation, exponentially averaged; see :func:`zclip`."""

    def __init__(self, alpha: float, z: float, eps: float, **shared: Any) -> None:
        super().__init__(winsor=1.0, **shared)
        if not 0 < alpha < 1 or not z > 0:
            raise ArgumentError("alpha must lie between 0 and 1, and z above 0.", f"alpha={alpha}, z={z}")
        self.alpha, self.z, self.eps = alpha, z, eps

    def blank(self) -> State:
        return {"mean": 0.0, "var": 0.0}

    def known(self, ops: Floats | Tensors, state: Mapping[str, Any]) -> Any:
        return state["mean"] + self.z * (ops.sqrt(state["var"]) + self.eps)

    def target(self, state: Mapping[str, Any], norm: Any) -> Any:
        """The norm to which a norm above the limit is scaled: the higher the norm, the lower the target."""
        ops = arithmetic(state)
        deviation = ops.sqrt(state["var"])
        z = (norm - state["mean"]) / (deviation + self.eps)
        scaled = state["mean"] + self.z * self.z * deviation / ops.most(z, self.z)
        return ops.where(state["count"] >= self.warmup, scaled, self.at_first)

    def winsorised(self, ops: Floats | Tensors, state: Mapping[str, Any], norm: Any) -> Any:
        return ops.where(norm > self.limit(state), self.target(state, norm), norm)

    def learn(self, ops: Floats | Tensors, state: Mapping[str, Any], norm: Any) -> State:
        mean = self.alpha * state["mean"] + (1 - self.alpha) * norm
        var = self.alpha * state["var"] + (1 - self.alpha) * (norm - mean) * (norm - mean)
        # in the warm-up: of all norms so far (Welford); at its end equal to those of the published code's buffer
        count = state["count"] + 1
        first_mean = state["mean"] + (norm - state["mean"]) / count
        first_var = state["var"] + ((norm - state["mean"]) * (norm - first_mean) - state["var"]) / count
        is_warm = state["count"] >= self.warmup
        return {"mean": ops.where(is_warm, mean, first_mean), "var": ops.where(is_warm, var, first_var)}


def zclip(
    alpha: float = 0.97, z: float = 2.5, *, warmup: int = 25, at_first: float = 1.0, eps: float = 1e-6, patience: int = 100
) -> ZClip:
    """ZClip: a norm more than z deviations above the mean is scaled to ``mean + z**2 * deviation / z_t``.

    ``mean' = alpha * mean + (1 - alpha) * n, variance' = alpha * variance + (1 - alpha) * (n - mean')**2``

    ``z_t = (n - mean) / (deviation + eps)``

    where n is the clipped norm. It begins with the mean and variance of a warm-up of 25 norms.

    Source: Kumar, Owen, Chowdhury, Güra 2025, arXiv 2504.02507, and github.com/bluorion-com/ZClip (``zscore``,
    ``adaptive_scaling``). Where the two differ, gradclip follows the code: eps is added to the deviation, and the variance
    uses the new mean. Its ``max_grad_norm`` is the limit of our warm-up (``at_first``); later there is no second limit. After
    ``patience`` clipped norms in a row ours starts again: as published, it keeps the old mean for ever after the norms jump.
    """
    return ZClip(alpha, z, eps, warmup=warmup, at_first=at_first, patience=patience)


class LogNorm(Following):
    """Mean and deviation of the logarithm; see :func:`log_norm`."""

    def __init__(self, decay: float, deviations: float, **shared: Any) -> None:
        super().__init__(winsor=1.0, **shared)
        if not 0 < decay < 1 or not deviations > 0:
            raise ArgumentError("decay must lie between 0 and 1, and deviations above 0.", f"{decay=}, {deviations=}")
        self.decay, self.deviations = decay, deviations

    def blank(self) -> State:
        return {"weight": 0.0, "log": 0.0, "square": 0.0}

    def range_of(self, name: str) -> tuple[float, float]:
        return (-math.inf, math.inf) if name == "log" else super().range_of(name)

    def known(self, ops: Floats | Tensors, state: Mapping[str, Any]) -> Any:
        weight = ops.most(state["weight"], 1e-6)
        mean = state["log"] / weight
        deviation = ops.sqrt(ops.most(state["square"] / weight - mean * mean, 1e-6))
        return ops.exp(mean + self.deviations * deviation)

    def learn(self, ops: Floats | Tensors, state: Mapping[str, Any], norm: Any) -> State:
        log = ops.log(norm)
        new = {"weight": 1.0, "log": log, "square": log * log}
        return {name: state[name] + (1 - self.decay) * (x - state[name]) for name, x in new.items()}


def log_norm(
    deviations: float = 4.0, *, decay: float = 0.995, warmup: int = 277, at_first: float = 1.0, patience: int = 100
) -> LogNorm:
    """RNMT+: ``exp(m + 4 * s)``, with the moving mean m and deviation s of the logarithm of the clipped norm.

    Source: Chen et al. 2018, "The Best of Both Worlds", arXiv 1804.09849 (four deviations of the logarithm of the norm), and
    lingvo's ``GradNormTracker`` (decay 0.995, bias correction of the averages, a variance of at least 1e-6, the capped
    norm observed, used from a total weight of 0.75 on, which is 277 norms). Both abort the step; ours clips it to the limit.
    lingvo takes the logarithm of n + 1, the paper and ours that of n.
    """
    return LogNorm(decay, deviations, warmup=warmup, at_first=at_first, patience=patience)


class AdaGC(Following):
    """An average for each gradient; see :func:`adagc`."""

    joint = True  #: it follows all gradients of a step together: their norms are a vector

    def __init__(self, beta: float, relative: float, **shared: Any) -> None:
        super().__init__(winsor=1.0, **shared)
        if not 0 < beta < 1 or not relative >= 1:
            raise ArgumentError("beta must lie between 0 and 1, and relative be at least 1.", f"{beta=}, {relative=}")
        self.beta, self.relative = beta, relative
        self.far = 10.0

    def blank(self) -> State:
        return {"average": 0.0}

    def known(self, ops: Floats | Tensors, state: Mapping[str, Any]) -> Any:
        return self.relative * state["average"]

    def learn(self, ops: Floats | Tensors, state: Mapping[str, Any], norm: Any) -> State:
        is_first, is_warm = state["count"] < 1, state["count"] >= self.warmup
        least = ops.where(is_first, norm, ops.least(state["average"], norm))
        moving = self.beta * state["average"] + (1 - self.beta) * norm
        return {"average": ops.where(is_warm, moving, least)}


def adagc(
    beta: float = 0.98, relative: float = 1.05, *, warmup: int = 100, at_first: float = 1.0, patience: int = 100
) -> AdaGC:
    """AdaGC: each gradient to 1.05 times its own average norm, ``average' = beta * average + (1 - beta) * n``.

    For a rule with a norm for each gradient. In the warm-up of 100 steps all are clipped together, by one norm and
    ``at_first``, and ``average`` is the least clipped norm of each gradient so far.

    Source: Wang et al. 2025, arXiv 2502.11034, algorithm 1, as in kozistr/pytorch_optimizer's ``AdaGC``. There a gradient of
    zeros in the warm-up makes the average 0, and the parameter never moves again; ours leaves norms of 0 out.
    """
    return AdaGC(beta, relative, warmup=warmup, at_first=at_first, patience=patience)


class Schedule:
    """A function of the step; see :func:`schedule`."""

    version = 1
    wholes = ("step",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        if not callable(function):
            raise ArgumentTypeError("A schedule is a function of the step.", f"function={shown(function)}")
        self.function = function

    def init(self) -> State:
        """The state before the first step."""
        return {"step": 0.0}

    def range_of(self, name: str) -> tuple[float, float]:
        """The least and the largest number of an entry of the state."""
        return 0.0, math.inf

    def limit(self, state: Mapping[str, Any]) -> Any:
        """The limit of the next step."""
        return self.function(state["step"])

    def observe(self, state: Mapping[str, Any], norm: Any) -> State:
        """The state after a step, whatever its norm."""
        return {"step": state["step"] + 1}


def schedule(function: Callable[[Any], Any]) -> Schedule:
    """A limit that is a function of the step's number: a float from 0 on, or a 0-d tensor while tracing.

    >>> from gradclip import limits
    >>> limit = limits.schedule(lambda step: 1.0 + 9.0 / (1 + step))
    >>> limit.limit(limit.init()), limit.limit(limit.observe(limit.init(), 3.0))
    (10.0, 5.5)
    """
    return Schedule(function)
