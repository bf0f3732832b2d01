"""Derivatives through a clip, and clips that are traced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gradclip.conformance.checks.bench import Bench, expect, gradients_of, require
from gradclip.conformance.checks.registry import by_norm, check
from gradclip.conformance.compare import Outcome


def _function(bench: Bench, limit: float, count: int) -> Callable[[Sequence[Any]], list[Any]]:
    """The clip as a function of so many gradients and, where the operation has them, the parameters after them."""
    arguments = bench.arguments(limit)
    arguments.pop("parameters", None)

    def function(arrays: Sequence[Any]) -> list[Any]:
        parameters = {"parameters": list(arrays[count:])} if len(arrays) > count else {}
        return bench.call(list(arrays[:count]), {**arguments, **parameters})[0]

    return function


def _inputs(bench: Bench, gradients: Sequence[list[float]]) -> list[Any]:
    arrays = [bench.array(values) for values in gradients]
    return [*arrays, *bench.arguments(1.0, arrays).get("parameters", ())]


def _derivative(bench: Bench, values: list[float], limit: float) -> tuple[float, ...]:
    """The derivative of the sum of the clipped elements by each element."""
    inputs = _inputs(bench, [values])
    derivative = bench.target.derivative(_function(bench, limit, 1), inputs)  # type: ignore[attr-defined]
    found = gradients_of(bench.outcome(derivative[:1]))
    require(len(found) == 1 and len(found[0]) == len(values), "the derivative does not have the shape of the gradient")
    return found[0]


@check(
    "The derivative at gradients of zeros is that of the identity.",
    training="0 / 0 in the derivative of the root: one layer of zeros turns all that is trained through a clip into NaN.",
    needs=("float32", "differentiable"),
    departure="derivative",
)
def derivative_at_zero(bench: Bench) -> None:
    got = _derivative(bench, [0.0, 0.0, 0.0], 1.0)
    expect(bench.expected([got]), bench.expected([[1.0] * 3]), 0, "the derivative at zeros")


@check(
    "The derivative where nothing is clipped is that of the identity, to the bit.",
    training="Meta-learning through a clip that did nothing sees a clip.",
    needs=("float32", "differentiable"),
)
def derivative_unclipped(bench: Bench) -> None:
    got = _derivative(bench, [0.3, -0.4, 0.1], 1.0)
    expect(bench.expected([got]), bench.expected([[1.0] * 3]), 0, "the derivative below the limit")


@check(
    "The derivative where the norm is the limit lies between those on its two sides.",
    training="NaN or a jump at gradients that have been clipped once already, whose norm is the limit.",
    needs=("float32", "differentiable"),
    departure="derivative",
)
def derivative_at_the_limit(bench: Bench) -> None:
    values = [3.0, 4.0]
    limit = bench.formula.sizes([values])[0]
    got = _derivative(bench, values, limit)
    for value, found, other in zip(values, got, _by_differences(bench, values, limit * (1 - 1e-6)), strict=True):
        low, high = min(other, 1.0) - 1e-3, max(other, 1.0) + 1e-3
        require(low <= found <= high, f"the derivative by {value} at the limit is {found!r}, not from {low!r} to {high!r}")


@check(
    "The derivative of a clip is that of its formula, the norm's part included, to a part in a thousand.",
    training="Meta-learning and second-order methods follow a wrong gradient: the norm is taken for a constant.",
    needs=("float32", "differentiable"),
)
def derivative_of_the_formula(bench: Bench) -> None:
    for values, limit in (([3.0, 4.0, -12.0], 2.0), ([30.0, 1.0], 6.5)):
        got = _derivative(bench, values, limit)
        for i, (found, exact) in enumerate(zip(got, _by_differences(bench, values, limit), strict=True)):
            close = abs(found - exact) <= 1e-3 * max(abs(exact), 0.01)
            require(close, f"the derivative by element {i} of {values}, limit {limit}, is {found!r}, not {exact:.6g}")


def _by_differences(bench: Bench, values: list[float], limit: float) -> list[float]:
    """The formula's derivative, from differences in float64."""
    slopes, step = [], 1e-7
    for i in range(len(values)):
        ends = [[*values[:i], values[i] + change, *values[i + 1 :]] for change in (step, -step)]
        above, below = (math.fsum(bench.formula.clipped([end], limit)[0]) for end in ends)
        slopes.append((above - below) / (2 * step))
    return slopes


@check(
    "A traced clip does the same as an eager one, to 4 ulp, and decides in each call: above the limit, below it, zeros, NaN.",
    training="Compiled training clips as the first batch needed it, for ever; or it differs from what was debugged.",
    needs=("float32", "traced"),
)
def traced_as_eager(bench: Bench) -> None:
    cases = ([3.0, -4.0], [0.25, -0.5], [0.0, -0.0], [300.0, 1e-3], [math.nan, 1.0], [math.inf, 1.0])
    function = bench.target.trace(_function(bench, 1.0, 1))  # type: ignore[attr-defined]
    for values in cases:
        eager = bench.clip([values], 1.0)
        traced = bench.outcome(list(function(_inputs(bench, [values]))))
        below = bench.formula.sizes([values])[0] < 1
        expect(traced, Outcome(eager.gradients), 0 if below else 4, f"traced, {values}")


@check(
    "Traced, the norm still covers all gradients, and each keeps its shape.",
    training="Compiled training clips each parameter separately, or mixes them up.",
    needs=("float32", "several", "traced"),
    of=by_norm,
)
def traced_several(bench: Bench) -> None:
    gradients = [[3.0, -4.0], [12.0], [0.25, 0.5, 84.0]]
    traced = bench.target.trace(_function(bench, 2.0, len(gradients)))  # type: ignore[attr-defined]
    got = bench.outcome(list(traced(_inputs(bench, gradients))))
    expect(got, Outcome(bench.exact(gradients, 2.0).gradients), 4, "traced, three gradients")
