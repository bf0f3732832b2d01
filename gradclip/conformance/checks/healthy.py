"""Healthy gradients: a clip bounds them, keeps their direction, and leaves the small ones unchanged."""

from __future__ import annotations

import math

from gradclip.conformance.checks.bench import Bench, expect, gradients_of, noise, norm_of, require
from gradclip.conformance.checks.registry import by_norm, check
from gradclip.conformance.compare import Outcome

ULP = 2.0**-23  # of float32, relative
SPREAD = (noise(100), [3.0, 4.0], [value / 64 for value in noise(7, seed=1)])  # far above any limit, above it, and just below 1


@check(
    "After the clip the norm (by value: each element) is at most the limit, to 4 ulp.",
    training="Steps larger than the limit: what the clip is there to prevent.",
)
def bound(bench: Bench) -> None:
    for values in SPREAD:
        for limit in (0.01, 1.0, 3.0, 6.0):
            got = bench.clip([values], limit)
            size = bench.formula.sizes(gradients_of(got))[0]
            require(size <= limit * (1 + 4 * ULP), f"{_what(bench)} after a clip to {limit} is {size!r}", got=got)


@check(
    "Gradients above the limit come out at the limit, to 4 ulp, and not below it; one far above and one just above.",
    training="Steps smaller than the learning rate says: training is slower, and no log shows the cause.",
)
def reaches_limit(bench: Bench) -> None:
    formula = bench.formula
    for values in ([3000.0, 4000.0], [3.0, 4.0], [30.0, 0.0, -40.0]):
        before = formula.sizes([values])[0]
        for limit in (before * 0.999, before / 4, before / 1000):
            got = bench.clip([values], limit)
            size = formula.sizes(gradients_of(got))[0]
            full = limit * before / (before + formula.rule.eps)
            close = abs(size - full) <= 4 * ULP * full
            require(close, f"{_what(bench)} {before!r} after a clip to {limit!r} is {size!r}, not {full!r}", got=got)


@check(
    "Gradients below the limit come back unchanged to the bit, negative zeros too.",
    training="Rounding noise in every step although nothing is clipped; runs with and without clipping cannot be compared.",
    departure="unclipped",
)
def unclipped_identity(bench: Bench) -> None:
    for values in (noise(100), [bench.minus_zero, 0.0, 1e-30], [value / 3 for value in noise(7)]):
        for limit in (49.0 * 3, 1e4 / 3, 1e30):
            values = list(bench.read(bench.array(values)).values)  # as float32 has them
            expect(bench.clip([values], limit), bench.expected([values]), 0, f"unclipped gradients, limit {limit!r}")


@check(
    "Clipping scales: all elements of a gradient by one positive number, to 4 ulp.",
    training="The step does not follow the gradient: clipping by norm should change only its length.",
    of=by_norm,
)
def direction(bench: Bench) -> None:
    for values in SPREAD:
        after = gradients_of(bench.clip([values], 0.5))[0]
        first = max(range(len(values)), key=lambda i: abs(values[i]))
        ratio = after[first] / values[first]
        require(0 < ratio <= 1, f"element {first} was scaled by {ratio!r}", got=bench.expected([after]))
        scaled = [value * ratio for value in values]
        expect(bench.expected([after]), bench.expected([scaled]), 4, f"every element scaled by {ratio!r}")


@check(
    "No element grows or changes its sign, whether it is clipped or not.",
    training="Clipping that amplifies: small gradients are blown up to the limit, or steps go uphill.",
)
def never_grows(bench: Bench) -> None:
    for values in (*SPREAD, [1e-3, -2e-3], [0.0, -0.0, 5e-7]):
        for limit in (0.25, 4.0, 1e6):
            after = gradients_of(bench.clip([values], limit))[0]
            require(len(after) == len(values), f"{len(values)} elements became {len(after)}")
            for was, became in zip(values, after, strict=True):
                same_sign = became == 0 or math.copysign(1, was) == math.copysign(1, became)
                shrunk = abs(became) <= abs(was) * (1 + 2 * ULP)
                require(same_sign and shrunk, f"{was!r} became {became!r}, limit {limit}", got=bench.expected([after]))


@check(
    "A second clip of clipped gradients changes them by at most 4 ulp.",
    training="A clip in the loop and another in the optimizer shrink the step twice.",
)
def idempotence(bench: Bench) -> None:
    values = [value * 1000 for value in noise(100)]
    limit = 500.0  # large, so that an epsilon in the formula does not matter
    once = bench.clip([values], limit)
    again = bench.clip([list(gradients_of(once)[0])], limit)
    expect(again, Outcome(once.gradients), 4, "the second clip")


@check(
    "Gradients and limit scaled by the same power of two give the same result, scaled, to 2 ulp.",
    training="The result depends on the loss scale, and on constants that are in no formula.",
)
def scale_covariance(bench: Bench) -> None:
    least = -24 if bench.formula.least == 0 else -2  # where the formula has a constant, stay far above it
    values = [value * 64 for value in noise(7)] if bench.formula.least else noise(7)
    plain = gradients_of(bench.clip([values], 32.0 if bench.formula.least else 0.5))[0]
    for power in (least, least // 2, 5, 20):
        factor = 2.0**power
        limit = (32.0 if bench.formula.least else 0.5) * factor
        got = Outcome(bench.clip([[value * factor for value in values]], limit).gradients)
        expect(got, bench.expected([[value * factor for value in plain]]), 2, f"scaled by 2**{power}")


@check(
    "Reversing the gradients, and the elements of each, reverses the results, to 4 ulp.",
    training="The step depends on the order in which parameters happen to be listed.",
    needs=("float32", "several"),
)
def order_invariance(bench: Bench) -> None:
    gradients = [noise(7), [300.0, -400.0], noise(100, seed=2)]
    there = bench.clip(gradients, 2.0)
    back = bench.clip([values[::-1] for values in reversed(gradients)], 2.0)
    turned = [list(values)[::-1] for values in reversed(gradients_of(back))]
    expect(bench.expected(turned), bench.expected(gradients_of(there)), 4, "the same gradients in reverse")


@check(
    "Vectors of many lengths are clipped as the formula says, to 4 ulp: odd ones, powers of two, and their neighbours.",
    training="A loop that forgets the elements after the last whole block: biases and embeddings are wrong, matrices right.",
)
def every_length(bench: Bench) -> None:
    for length in (1, 2, 7, 33, 100, 1025, 5001):
        # the squares of the longest add up exactly, in any order
        values = noise(length, seed=length) if length < 5000 else [float(i % 7 - 3) for i in range(length)]
        expect(bench.clip([values], 0.5), bench.exact([values], 0.5), 4, f"{length} elements")


@check(
    "The same call on the same gradients gives the same bits.",
    training="Runs cannot be repeated.",
)
def repeatability(bench: Bench) -> None:
    values = [noise(1025), noise(7)] if "several" in bench.claims else [noise(1025)]
    first = bench.clip(values, 0.5)
    for _ in range(3):
        again = bench.clip(values, 0.5)
        expect(again, first, 0, "the same call again")
        same_norm = norm_of(again) == norm_of(first)  # which `expect` compares to a few ulp
        require(same_norm, f"the norm is {norm_of(again)!r}, and was {norm_of(first)!r}", expected=first, got=again)


def _what(bench: Bench) -> str:
    return "the norm" if bench.formula.is_norm else "the greatest magnitude"
