"""Numbers at the edges: NaN, infinity, zero, subnormal and extreme ones, complex ones, half precision, and very many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gradclip.conformance.checks.bench import Bench, coarse, expect, gradients_of, noise, norm_of, require
from gradclip.conformance.checks.registry import Check, add, by_norm, check
from gradclip.conformance.compare import Outcome, ulps


@check(
    "A NaN stays visible: by norm, the elements that share its norm and the reported norm become NaN; by value it stays "
    "(per example, a NaN norm clips nothing).",
    training="NaN is swallowed: a broken step looks like a healthy one, or like zeros, and skips and loss scaling do not act.",
)
def nan_propagates(bench: Bench) -> None:
    values, other = [math.nan, 1.0, 0.0], [3.0, 4.0]
    formula = bench.formula
    got = bench.clip([values], 2.0)
    spoilt = [math.nan] * 3 if formula.is_norm and not formula.rule.keep_if_nan else values
    expect(Outcome(got.gradients), bench.expected([spoilt]), 1, "beside a NaN")
    _nonfinite_norm(bench, got, math.nan)
    if "several" in bench.claims:
        spreads = formula.is_joint and not formula.rule.keep_if_nan
        beside = [math.nan] * 2 if spreads else formula.clipped([other], math.inf if formula.is_joint else 2.0)[0]
        got = bench.clip([values, other], 2.0)
        expect(Outcome(got.gradients), bench.expected([spoilt, beside]), 4, "in a gradient beside one with a NaN")


@check(
    "An infinity stays visible: by norm it becomes NaN, finite elements that share its norm become 0 or NaN, and the "
    "reported norm is infinite; by value it becomes the limit.",
    training="An overflow is scaled to a healthy step in the direction of a single weight, and loss scaling does not act.",
)
def infinity_propagates(bench: Bench) -> None:
    for infinity in (math.inf, -math.inf):
        got = bench.clip([[infinity, 1.0]], 2.0)
        if not bench.formula.is_norm:
            expect(got, bench.expected([[math.copysign(2.0, infinity), 1.0]]), 0, "by value")
            continue
        array = got.gradients[0]
        require(array is not None and len(array.values) == 2, "the gradient is gone", got=got)
        first, second = array.values  # type: ignore[union-attr]
        require(first != first, f"{infinity} became {first!r}", expected=bench.expected([[math.nan, 0.0]]), got=got)
        seen = second != second or second == 0
        require(seen, f"1.0 beside {infinity} became {second!r}", expected=bench.expected([[math.nan, 0.0]]), got=got)
        _nonfinite_norm(bench, got, math.inf)


def _nonfinite_norm(bench: Bench, got: Outcome, norm: float) -> None:
    if bench.formula.is_joint and "norm" in bench.claims:
        value = norm_of(got)
        require(value is not None and (value == norm or (value != value and norm != norm)), f"the norm is {value!r}", got=got)


@check(
    "Gradients of zeros stay zeros, signs included, at any limit above 0; and the reported norm is 0.",
    training="0 / 0: one step without gradients turns the weights of a layer into NaN.",
)
def zero_gradients(bench: Bench) -> None:
    for limit in (1e-30, 1.0, 1e30):
        zeros = [0.0, bench.minus_zero, 0.0]
        expect(bench.clip([zeros], limit), bench.exact([zeros], limit), 0, f"zeros, limit {limit}")


@check(
    "With error_if_nonfinite a norm that is infinite or NaN is refused and no gradient is changed; finite ones are clipped.",
    training="A step that should be stopped is taken, or a healthy one is stopped.",
    needs=("float32", "several", "norm", "error_if_nonfinite"),
    of=lambda formula: formula.is_joint,
)
def error_if_nonfinite(bench: Bench) -> None:
    for bad in (math.inf, math.nan):
        arrays = [bench.array([3.0, 4.0]), bench.array([bad, 1.0])]
        bench.refuses(arrays, {**bench.arguments(1.0, arrays), "error_if_nonfinite": True}, f"a norm of {bad}")
    healthy = [[3.0, 4.0]]
    expect(bench.clip(healthy, 1.0, error_if_nonfinite=True), bench.exact(healthy, 1.0), 4, "finite gradients")
    lax = bench.clip([[math.nan, 1.0]], 1.0, error_if_nonfinite=False)
    expect(Outcome(lax.gradients), bench.expected([[math.nan, math.nan]]), 0, "error_if_nonfinite=False")


def _in_range(gradients: Sequence[tuple[Sequence[complex], float]], dtype: str = "float32") -> Callable[[Bench], None]:
    def run(bench: Bench) -> None:
        for numbers, limit in gradients:
            values = bench.read(bench.array(numbers, dtype)).values  # as the dtype has them
            expect(bench.clip([values], limit, dtype), bench.exact([values], limit, dtype), 4, f"limit {limit}")

    return run


add(
    Check(
        "large_squares",
        "Gradients whose squares overflow have a finite norm, and are clipped or left alone by it.",
        "A large but healthy gradient is taken for an infinite one: a step of zeros, or NaN in every weight.",
        ("float32", "extreme"),
        by_norm,
        _in_range([([3e30, -4e30], 1.0), ([3e30, 4e30], 1e31), ([3e30], 2.0), ([1.8e19, 1.8e19], 1.0)]),
        "finite-norm",
    )
)
add(
    Check(
        "small_squares",
        "Gradients whose squares vanish have a norm above 0, and are clipped or left alone by it.",
        "Small gradients are not clipped at all; with a small limit, as in private training, the limit does not hold.",
        ("float32", "extreme"),
        lambda formula: formula.is_norm and formula.least == 0,  # else the formula's constant hides the norm
        _in_range([([3e-30, -4e-30], 1.0), ([3e-23, 4e-23], 1e-23), ([3e-30, 4e-30], 1e-30)]),
        "finite-norm",
    )
)
add(
    Check(
        "half_squares",
        "In float16 a gradient above 256, whose square overflows, has a finite norm.",
        "A gradient of 300, ordinary under loss scaling, becomes a step of zeros, or NaN.",
        ("float16", "extreme"),
        by_norm,
        _in_range([([300.0, -400.0], 1.0), ([200.0], 1000.0), ([40000.0, 40000.0], 1.0), ([10.0] * 4096, 1.0)], "float16"),
        "finite-norm",
    )
)
add(
    Check(
        "float16_sums",
        "The sum of squares of float16 gradients is not rounded to float16 at each step.",
        "The sum stands still at 2048 times its smallest part: large layers are clipped too little.",
        ("float16",),
        by_norm,
        _in_range([([1.0] * 4096, 1.0), (coarse(4096), 0.5), ([3.0, -4.0], 0.5)], "float16"),
        "finite-norm",
    )
)
add(
    Check(
        "bfloat16_sums",
        "The sum of squares of bfloat16 gradients is not rounded to bfloat16 at each step.",
        "The sum stands still at 256 times its smallest part: large layers are clipped too little.",
        ("bfloat16",),
        by_norm,
        _in_range([([1.0] * 4096, 1.0), (coarse(4096), 0.5), ([3.0, -4.0], 0.5)], "bfloat16"),
    )
)
add(
    Check(
        "float64_arithmetic",
        "float64 gradients are measured and scaled in float64, and the limit keeps all its bits.",
        "Numerical checks of gradients in float64 fail by a relative 1e-8, and nothing shows the cause.",
        ("float64",),
        lambda name: True,
        _in_range([([0.1, 0.2, -0.7], 0.3), ([3.0 + 1e-9, 0.0, 4.0 - 1e-9], 1.1), ([1e-3 / 7] * 3, 1e-4 / 3)], "float64"),
        "dtypes",
    )
)
add(
    Check(
        "complex_magnitude",
        "A complex element counts by its magnitude, and keeps its phase.",
        "The imaginary part is lost, or counts negative: complex layers are clipped too little and change their phase.",
        ("complex64",),
        by_norm,
        _in_range([([3 + 4j, 12j], 6.5), ([3 + 4j, 0j], 1.0), ([0.25 + 0.25j], 1.0)], "complex64"),
        "dtypes",
    )
)


@check(
    "Subnormal gradients below the limit come back unchanged to the bit.",
    training="The smallest gradients become zeros although nothing is clipped.",
    needs=("float32", "subnormal"),
    departure="unclipped",
)
def subnormal_identity(bench: Bench) -> None:
    values = [2.0**-140, -(2.0**-149), 3 * 2.0**-130]
    expect(Outcome(bench.clip([values], 1.0).gradients), bench.expected([values]), 0, "subnormal gradients")


@check(
    "The norm of a million elements is right to 128 ulp (0.0015 %): all alike, and one large with very many small.",
    training="A running float32 sum stands still: the more weights a layer has, the less it is clipped.",
    needs=("float32", "large"),
    of=lambda formula: formula.is_norm and formula.rule.order == 2,
    departure="accurate-norm",
)
def a_million_elements(bench: Bench) -> None:
    count = 2**20 + 3
    for large, small in ((0.1, 0.1), (4096.0, 1.0)):
        large, small = bench.read(bench.array([large, small])).values  # as float32 has them
        norm = math.sqrt(math.fsum((large**2, (count - 1) * small**2)))
        norm /= math.sqrt(count) if bench.formula.rule.mean else 1
        got = bench.run([bench.array([large, *[small] * (count - 1)])], 0.15 * norm)
        after = gradients_of(got)[0]
        require(len(after) == count, f"{count} elements became {len(after)}")
        factor = bench.formula.coefficient(norm, 0.15 * norm)
        outcomes = [(large * factor, after[0]), *((small * factor, value) for value in set(after[1:]))]
        if bench.formula.is_joint and "norm" in bench.claims:
            reported = norm_of(got)
            outcomes.append((norm, math.nan if reported is None else reported))
        for exact, found in outcomes:
            far = ulps(found, exact, "float32")
            require(far <= 128, f"one {large} and many {small} gave {found!r}, not {exact!r}: {far:.4g} ulp away")


@check(
    "Many small gradients have the norm of one large one, to 4 ulp.",
    training="Models of many small parameters are clipped by another norm than models of a few large ones.",
    needs=("float32", "several"),
    of=lambda formula: formula.is_joint,
)
def many_small_gradients(bench: Bench) -> None:
    gradients = [noise(3, seed=seed) for seed in range(200)]
    expect(bench.clip(gradients, 2.0), bench.exact(gradients, 2.0), 4, "200 gradients of 3 elements")
