"""The elements that share a norm: all gradients, one gradient, a slice of one, or one example."""

from __future__ import annotations

from typing import Any

from gradclip.conformance.array import Array
from gradclip.conformance.checks.bench import Bench, expect, gradients_of, noise
from gradclip.conformance.checks.registry import check
from gradclip.conformance.compare import Outcome


@check(
    "A gradient cut in pieces has the norm of the whole, and is scaled by the same number, to 4 ulp.",
    training="How a model is divided into parameters decides how large its steps are; the direction of the step changes.",
    needs=("float32", "several"),
    of=lambda formula: formula.is_joint,
)
def split_invariance(bench: Bench) -> None:
    values = noise(100)
    whole = bench.clip([values], 2.0)
    for size in (50, 7, 1):
        pieces = bench.clip([values[i : i + size] for i in range(0, 100, size)], 2.0)
        joined = bench.expected([[value for piece in gradients_of(pieces) for value in piece]])
        expect(Outcome(joined.gradients, pieces.norm), whole, 4, f"in pieces of {size}")


@check(
    "A gradient is clipped alike whether it comes alone or with others, to the bit.",
    training="One layer's large gradient shrinks the steps of all the others.",
    needs=("float32", "several"),
    of=lambda formula: not formula.is_joint,
)
def independence(bench: Bench) -> None:
    gradients = [noise(7), [300.0, -400.0], [0.25, 0.125], noise(100, seed=2)]
    alone = [gradients_of(bench.clip([values], 2.0))[0] for values in gradients]
    expect(Outcome(bench.clip(gradients, 2.0).gradients), bench.expected(alone), 0, "together and alone")


@check(
    "Several gradients are clipped as the formula says, to 4 ulp: one far above the limit, one below, one of zeros.",
    training="Only the first or the last gradient is clipped, or each by the norm of another.",
    needs=("float32", "several"),
)
def several_gradients(bench: Bench) -> None:
    gradients = [[0.25, 0.125], [300.0, -400.0], [0.0, 0.0], [3.0, 4.0, 12.0]]
    expect(bench.clip(gradients, 2.0), bench.exact(gradients, 2.0), 4, "several gradients")


@check(
    "Each slice along the other axes has a norm of its own: a matrix is clipped row by row, and column by column; negative "
    "axes count from the end.",
    training="The rows of an embedding, which should be clipped one by one, are scaled by the norm of the whole table.",
    needs=("float32", "axes"),
    of=lambda formula: "axes" in formula.native.arguments,
)
def slices_apart(bench: Bench) -> None:
    rows = [[3.0, 4.0, 12.0], [0.25, 0.5, 0.0]]
    columns = [list(column) for column in zip(*rows, strict=True)]
    matrix = [value for row in rows for value in row]
    by_row = [value for row in bench.formula.clipped(rows, 1.0) for value in row]
    clipped = bench.formula.clipped(columns, 1.0)
    by_column = [clipped[column][row] for row in range(2) for column in range(3)]
    for axes, values in (([1], by_row), ([-1], by_row), ([0], by_column), ([-2], by_column)):
        got = bench.run([bench.array(matrix, shape=(2, 3))], 1.0, axes=axes)
        expect(got, Outcome((Array(tuple(values), (2, 3), "float32"),)), 4, f"axes={axes}")
    whole = bench.formula.clipped([matrix], 1.0)[0]
    for every_axis in ([0, 1], [-1, 0]):
        got = bench.run([bench.array(matrix, shape=(2, 3))], 1.0, axes=every_axis)
        expect(got, Outcome((Array(tuple(whole), (2, 3), "float32"),)), 4, f"axes={every_axis}")


@check(
    "Each column of a matrix is a unit with its own norm; its limit is relative to the norm of the parameter's column, which "
    "counts as at least 1e-3.",
    training="Adaptive clipping that mixes the units of a layer, or freezes parameters that start at zero.",
    of=lambda formula: formula.is_relative,
)
def units_apart(bench: Bench) -> None:
    gradient, parameter = [3.0, 30.0, 0.5, 4.0, 40.0, 0.0], [0.6, 0.0, 3.0, 0.8, 0.0, 4.0]
    limits = [0.5 * 1.0, 0.5 * 1e-3, 0.5 * 5.0]  # of the three columns; the second parameter's is all zeros
    norms = [5.0, 50.0, 0.5]
    exact = [value * min(1.0, limits[i % 3] / norms[i % 3]) for i, value in enumerate(gradient)]
    parameters = [bench.array(parameter, shape=(2, 3))]
    clipped, _ = bench.call([bench.array(gradient, shape=(2, 3))], {bench.formula.native.limit: 0.5, "parameters": parameters})
    expect(bench.outcome(clipped), Outcome((Array(tuple(exact), (2, 3), "float32"),)), 4, "columns")


@check(
    "Each example has its own norm over all gradients; the result is the sum of the clipped examples.",
    training="One example outweighs the batch: the promise of differentially private training does not hold.",
    needs=("float32", "several"),
    of=lambda formula: formula.is_of_examples,
)
def examples_apart(bench: Bench) -> None:
    examples = [([3.0, 4.0], [12.0]), ([0.25, 0.125], [0.0]), ([600.0, 800.0], [1.0])]
    first = [value for vector, _ in examples for value in vector]
    second = [value for _, vector in examples for value in vector]
    got = bench.target.make(first, (3, 2), "float32"), bench.target.make(second, (3, 1), "float32")
    clipped = [bench.formula.clipped(list(example), 1.0) for example in examples]
    sums = [[sum(example[i][j] for example in clipped) for j in range(size)] for i, size in ((0, 2), (1, 1))]
    expect(Outcome(bench.run(got, 1.0).gradients), bench.expected(sums), 4, "three examples")


@check(
    "With two different bounds, the lower one bounds from below, and the upper one from above.",
    training="Every element becomes one of the bounds: the gradient is gone.",
    of=lambda formula: len(formula.native.needed) == 2,
)
def two_bounds(bench: Bench) -> None:
    values, bounded = [3.0, -4.0, 1.5, -0.5, 0.0], [2.0, -1.0, 1.5, -0.5, 0.0]
    got = bench.clip([values], 2.0, clip_value_min=-1.0)
    expect(got, bench.expected([bounded]), 0, "clip_value_min=-1.0, clip_value_max=2.0")


@check(
    "The reported norm is the norm of the gradients before the clip, clipped or not, to 4 ulp.",
    training="The log shows a norm that never exceeds the limit: exploding gradients go unseen.",
    needs=("float32", "several", "norm"),
    of=lambda formula: formula.is_joint,
)
def norm_before_clip(bench: Bench) -> None:
    for limit in (0.5, 1e6):
        for gradients in ([[3.0, 4.0], [12.0]], [noise(100), noise(7)]):
            got, exact = bench.clip(gradients, limit), bench.exact(gradients, limit)
            expect(Outcome((), got.norm), Outcome((), exact.norm), 4, f"limit {limit}")


@check(
    "The default order is 2; order 1 adds magnitudes up, infinity takes the greatest.",
    training="A limit that was tuned for one norm is applied to another, which is larger by the root of the number of weights.",
    needs=("float32", "several", "norm", "norm_type"),
    of=lambda formula: formula.is_joint,
)
def norm_orders(bench: Bench) -> None:
    gradients = [[3.0, -4.0], [0.0, 12.0]]
    flat = [3.0, -4.0, 0.0, 12.0]
    for order, norm in ((None, 13.0), (2.0, 13.0), (1.0, 19.0), (float("inf"), 12.0)):
        more: dict[str, Any] = {} if order is None else {"norm_type": order}
        got = bench.clip(gradients, 6.5, **more)
        factor = 6.5 / (norm + bench.formula.rule.eps)
        exact = bench.expected([[value * factor for value in flat[:2]], [value * factor for value in flat[2:]]])
        expect(got, Outcome(exact.gradients, Array((norm,), (), "float32")), 4, f"norm_type={order}")


@check(
    "A norm that the caller passes is used, and returned, instead of the gradients' own.",
    training="In parallel training every process clips by its own part's norm, and the replicas drift apart.",
    needs=("float32", "several", "use_norm"),
    of=lambda formula: "use_norm" in formula.native.arguments,
)
def known_norm(bench: Bench) -> None:
    gradients = [[3.0, 4.0], [12.0]]
    got = bench.clip(gradients, 4.0, use_norm=bench.target.make([16.0], (), "float32"))
    expect(Outcome(got.gradients), bench.expected([[0.75, 1.0], [3.0]]), 4, "use_norm=16, clip_norm=4")
