"""Unusual limits: zero, infinite, negative, NaN, an integer, an array."""

from __future__ import annotations

import math

from gradclip.conformance.checks.bench import Bench, expect, gradients_of, noise, require
from gradclip.conformance.checks.registry import check


@check(
    "A limit of 0 turns all gradients into zeros, also zero ones (Keras clips nothing; Paddle's ByNorm and ByValue refuse it).",
    training="0 / 0: NaN in every weight, at the end of a schedule of the limit, or at a layer whose gradients are zero.",
    departure="zero-limit",
)
def zero_limit(bench: Bench) -> None:
    for values in ([3.0, -4.0], [0.0, 0.0]):
        if bench.formula.native.at_zero == "error":
            arrays = [bench.array(values)]
            bench.refuses(arrays, bench.arguments(0.0, arrays), "a limit of 0")
            continue
        got = bench.clip([values], 0.0)
        if bench.formula.native.at_zero == "off":
            expect(got, bench.expected([values]), 0, "a limit of 0")
        else:
            expect(got, bench.expected([[0.0] * len(values)]), 1, "a limit of 0")


@check(
    "An infinite limit measures and clips nothing: gradients come back to the bit, zeros too.",
    training="inf / inf: logging the norm without clipping, the commonest use of such a limit, turns every weight into NaN.",
    departure="infinite-limit",
)
def infinite_limit(bench: Bench) -> None:
    for values in ([3.0, -4.0], [0.0, bench.minus_zero], noise(7)):
        got = bench.clip([values], math.inf)
        expect(got, bench.expected([values]), 0, "an infinite limit")
        expect(got, bench.expected([values], [values]), 4, "an infinite limit")  # and its norm


@check(
    "An infinite limit clips nothing, whatever the gradients hold: infinities and NaN come back, and so do their neighbours.",
    training="A run that only measures loses the healthy elements of a step that a skip of NaN would have saved.",
    departure="infinite-limit",
)
def infinite_limit_nonfinite(bench: Bench) -> None:
    for values in ([math.inf, 1.0], [-math.inf, 1.0], [math.nan, 1.0]):
        expect(bench.clip([values], math.inf), bench.expected([values]), 0, "an infinite limit")


@check(
    "A limit far beyond any gradient, and one far below, is arithmetic like any other: 1e37 clips nothing, 1e-30 scales.",
    training="g * limit overflows, 1 / limit vanishes: gradients that need no clipping become infinite or zero.",
    departure="wide-arithmetic",
)
def far_limits(bench: Bench) -> None:
    values = [30.0, -40.0, 120.0]
    expect(bench.clip([values], 1e37), bench.expected([values]), 0, "a limit of 1e37")
    expect(bench.clip([values], 1e-30), bench.exact([values], 1e-30), 4, "a limit of 1e-30")


@check(
    "A negative limit is refused, and the gradients stay as they are; tf.clip_by_norm counts it as 0.",
    training="Every gradient changes its sign: the loss goes up, by steps of just the right size.",
    of=lambda formula: len(formula.native.needed) == 1,  # two bounds cross, which has a defined result
    departure="negative-limit",
)
def negative_limit(bench: Bench) -> None:
    for limit in (-1.0, -10.0, -math.inf):
        arrays = [bench.array([3.0, 4.0])]
        if bench.formula.rule.negative_is_zero:
            expect(bench.run(arrays, limit), bench.expected([[0.0, 0.0]]), 1, f"a limit of {limit}")
        else:
            bench.refuses(arrays, bench.arguments(limit, arrays), f"a limit of {limit}")


@check(
    "A limit of NaN is refused, and the gradients stay as they are.",
    training="A limit computed from something that failed turns every weight into NaN, or silently clips nothing.",
    departure="negative-limit",
)
def nan_limit(bench: Bench) -> None:
    for values in ([3.0, 4.0], [0.0, 0.0]):
        arrays = [bench.array(values)]
        bench.refuses(arrays, bench.arguments(math.nan, arrays), "a limit of NaN")


@check(
    "An integer limit means the same as the float.",
    training="Integer division: a limit of 1 from a configuration file clips everything to 0.",
)
def integer_limit(bench: Bench) -> None:
    for limit in (1, 2, 1000):
        values = [3.0, -4.0]
        got = bench.run([bench.array(values)], limit)
        expect(got, bench.exact([values], float(limit)), 4, f"limit={limit}")


@check(
    "A limit in a 0-d array means the same as its number.",
    training="A scheduled limit, which lives on the device, is read once and never again, or is cut to an integer.",
    needs=("float32", "array limit"),
    departure="any-number",
)
def array_limit(bench: Bench) -> None:
    for limit in (2.5, 0.5, 1000.0):
        arrays = [bench.array([3.0, -4.0])]
        arguments = bench.arguments(limit, arrays, lambda number: bench.target.make([number], (), "float32"))
        expect(bench.outcome(*bench.call(arrays, arguments)), bench.exact([[3.0, -4.0]], limit), 4, f"limit={limit}")


@check(
    "If the norm equals the limit, nothing is clipped, to the bit; an epsilon in the formula counts, to 4 ulp.",
    training="Gradients that were clipped once are clipped a little again; with small limits the epsilon of torch is lost.",
)
def norm_is_the_limit(bench: Bench) -> None:
    for values in ([5.0, -5.0], [-8.0]) if bench.formula.rule.mean else ([3.0, -4.0], [-8.0]):  # their norm is a whole number
        for scale in (1.0, 2.0**-9):
            scaled = [value * scale for value in values]
            limit = bench.formula.sizes([scaled])[0]
            exact = bench.exact([scaled], limit)
            expect(bench.clip([scaled], limit), exact, 4 if bench.formula.rule.eps else 0, f"a limit of {limit}")


@check(
    "A greater limit never gives a smaller gradient, to 2 ulp; across the norm there is no jump.",
    training="Loosening the limit tightens it: a schedule or a search over limits goes the wrong way.",
)
def monotone_in_limit(bench: Bench) -> None:
    values, before = [3.0, 4.0], 0.0
    norm = bench.formula.sizes([values])[0]
    for limit in (0.1, 0.5, 1.0, 2.0, norm * 0.99999, norm, norm * 1.00001, 8.0, 1e3):
        got = bench.clip([values], limit)
        size = bench.formula.sizes(gradients_of(got))[0]
        require(size >= before * (1 - 2.0**-22), f"{size!r} at limit {limit!r}, {before!r} at a smaller one", got=got)
        require(size >= min(limit, norm) * (1 - 2e-6), f"{size!r} at limit {limit!r}", got=got)
        before = size
