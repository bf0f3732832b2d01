"""The forms of gradients: None, none at all, iterators, one listed twice, several dtypes, shapes, layouts, sparse ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gradclip.conformance.array import FLOATS, Array
from gradclip.conformance.checks.bench import Bench, coarse, expect, gradients_of, noise, norm_of, require
from gradclip.conformance.checks.registry import Check, add, check, every
from gradclip.conformance.compare import Outcome


@check(
    "None stays where it is, and the others are clipped as if it were not there.",
    training="A parameter that took no part in the step shifts all gradients after it to the wrong parameter, or counts.",
    needs=("float32", "several", "none"),
)
def none_kept(bench: Bench) -> None:
    first, second = [3.0, -4.0], [12.0]
    without = bench.clip([first, second], 2.0)
    a, b = without.gradients
    for gradients, kept in (
        ([first, None, second], (a, None, b)),
        ([None, first, second, None], (None, a, b, None)),
    ):
        expect(bench.clip(gradients, 2.0), Outcome(kept, without.norm), 4, "with None among the gradients")


@check(
    "No gradients, or only None, are no error: nothing is clipped, and the reported norm is 0.",
    training="A step without gradients (a frozen model, an empty shard) ends the run.",
    needs=("float32", "several", "none", "empty"),
    departure="nothing-to-clip",
)
def nothing_to_clip(bench: Bench) -> None:
    for count in (0, 2):
        clipped, norm = bench.call([None] * count, bench.arguments(1.0, [None] * count))
        require(clipped == [None] * count, f"{count} times None became {len(clipped)} gradients: {clipped!r:.100}")
        value = norm_of(bench.outcome([], norm))
        require(value is None or value == 0, f"the norm of nothing is {value!r}")


@check(
    "Gradients without elements keep their shape, and add nothing to the norm.",
    training="The mean or the maximum of nothing: NaN in every weight because of one empty shard.",
    needs=("float32", "several", "empty"),
    of=lambda formula: math.isfinite(formula.rule.order),  # else the norm of nothing is not defined
)
def empty_gradients(bench: Bench) -> None:
    for shape in ((0,), (0, 3)):
        arrays = [bench.array([], shape=shape), bench.array([3.0, -4.0])]
        exact = bench.exact([[], [3.0, -4.0]], 2.0)
        gradients = (Array((), shape, "float32"), exact.gradients[1])
        expect(bench.run(arrays, 2.0), Outcome(gradients, exact.norm), 4, f"one gradient of shape {shape}")


@check(
    "Gradients from an iterator, which can be read only once, are clipped like those from a list.",
    training="The norm is taken from the iterator, which is then used up: the norm is logged, and nothing is clipped.",
    needs=("float32", "several", "iterator"),
    departure="iterator",
)
def iterator_walked_once(bench: Bench) -> None:
    gradients = [[3.0, -4.0], [12.0], [84.0]]
    expect(_from_iterator(bench, gradients), bench.exact(gradients, 2.0), 4, "from an iterator")


def _from_iterator(bench: Bench, gradients: list[list[float]]) -> Outcome:
    arrays = [bench.array(values) for values in gradients]

    def walk() -> Iterator[Any]:
        yield from arrays

    clipped, norm = bench.call(walk(), bench.arguments(2.0, arrays))
    # in place, the arrays count, whatever the call returned
    return bench.outcome(arrays if "in place" in bench.claims else clipped, norm)


@check(
    "A gradient that is listed twice as the same object counts once, and is scaled once.",
    training="Tied weights count twice, and in place are scaled twice: they are trained by steps that are too small.",
    needs=("float32", "several", "twice"),
    departure="twice",
)
def twice_counts_once(bench: Bench) -> None:
    for values, limit in (([3.0, -4.0], 0.5), ([300.0, 400.0], 2.0)):
        array = bench.array(values)
        alone = bench.exact([values], limit)
        expected = Outcome(alone.gradients * 2, alone.norm)
        expect(bench.run([array, array], limit), expected, 4, f"the same gradient twice, limit {limit}")


@check(
    "Every gradient keeps its dtype, and all count in one norm.",
    training="Mixed precision: half of the gradients come back in the widest dtype, and memory doubles; or it is an error.",
    needs=("float32", "float64", "several", "mixed"),
    departure="dtypes",
)
def mixed_dtypes(bench: Bench) -> None:
    gradients = [[3.0, -4.0], [12.0, 0.5]]
    dtypes = ("float32", "float64")
    got = bench.run([bench.array(values, dtype) for values, dtype in zip(gradients, dtypes, strict=True)], 2.0)
    require(len(got.gradients) == 2, f"2 gradients became {len(got.gradients)}")
    for i, (array, dtype, exact) in enumerate(zip(got.gradients, dtypes, bench.exact(gradients, 2.0).gradients, strict=True)):
        kept = array is not None and array.dtype == dtype
        require(kept, f"gradient {i} of {dtype} became {'None' if array is None else array.dtype}", got=got)
        as_float32 = Outcome((Array(array.values, array.shape, "float32"),))  # type: ignore[union-attr]
        expect(as_float32, Outcome((exact,)), 4, f"the gradient of {dtype}")  # as far as float32 gradients have a say


@check(
    "Shape, dtype and device are those of the gradient, clipped or not.",
    training="The optimizer broadcasts a wrong shape into the weights, or changes its state's dtype with the first step.",
    departure="dtype-kept",
)
def shape_and_dtype_kept(bench: Bench) -> None:
    for dtype in [name for name in FLOATS if name in bench.claims]:
        for shape, count in (((2, 3), 6), ((1,), 1), ((2, 1, 3), 6))[: 3 if dtype == "float32" else 1]:
            values = coarse(count, seed=3)
            for limit in (0.5, 1024.0):
                array = bench.array(values, dtype, shape)
                clipped, _ = bench.call([array], bench.arguments(limit, [array]))
                got = bench.outcome(clipped)
                require(len(got.gradients) == 1 and got.gradients[0] is not None, "the gradient is gone", got=got)
                kept = Array(got.gradients[0].values, shape, dtype)  # type: ignore[union-attr]
                expect(got, Outcome((kept,)), 0, f"a gradient of {dtype} and shape {shape}")
                if limit == 1024.0:
                    expect(got, Outcome((Array(tuple(values), shape, dtype),)), 0, f"unclipped, of shape {shape}")
                was, became = (str(getattr(x, "device", None)) for x in (array, clipped[0]))
                require(was == became, f"a gradient on {was} became one on {became}")


@check(
    "A gradient without axes is clipped like a vector of one element, and keeps its shape.",
    training="A learned temperature or scale becomes a vector, or ends the run.",
    needs=("float32", "scalar"),
    departure="shape-kept",
)
def scalar_gradient(bench: Bench) -> None:
    for value in (-5.0, 0.25):
        exact = bench.exact([[value]], 1.0)
        gradient = Array(exact.gradients[0].values, (), "float32")  # type: ignore[union-attr]
        got = bench.run([bench.array([value], shape=())], 1.0)
        expect(got, Outcome((gradient,), exact.norm), 4, f"{value} without axes")


def _add_layout(layout: str, description: str) -> None:
    def run(bench: Bench) -> None:
        values = [2.5] * 12 if layout == "expanded" else noise(12)
        for limit in (0.5, 1e4):
            plain = bench.run([bench.array(values, shape=(3, 4))], limit)
            laid = bench.target.make_layout(values, bench.shape((3, 4)), "float32", layout)  # type: ignore[attr-defined]
            before = bench.outcome([laid])
            try:
                got = bench.run([laid], limit)
            except Exception:
                if layout != "expanded" or "in place" not in bench.claims:
                    raise
                expect(bench.outcome([laid]), before, 0, "an expanded gradient, refused in place, as frameworks do")
                continue
            expect(got, plain, 4 if limit < 1 else 0, f"a {layout} gradient")

    add(Check(f"{layout}_gradient", description, _LAYOUT, ("float32", layout), every, run))


_LAYOUT = "Elements are read or written in the order of memory: gradients of views come back shuffled, or clipped only in part."

_add_layout("transposed", "A gradient that lies transposed in memory is clipped like any other.")
_add_layout("strided", "A gradient whose elements lie apart in memory is clipped like any other.")
_add_layout(
    "expanded",
    "A gradient that is one number in memory, like that of a sum, is clipped like any other; in place it may be refused.",
)


@check(
    "A sparse gradient is clipped like the dense one that it stands for: duplicate rows are added up before the norm.",
    training="The norm of an embedding's gradient depends on how often a word is in the batch, and not on the step it makes.",
    needs=("float32", "sparse"),
    of=lambda formula: not formula.is_relative and not formula.is_of_examples,
    departure="sparse",
)
def sparse_rows_merged(bench: Bench) -> None:
    values = [3.0, 0.0, 1.0, 1.0, 2.0, 2.0]  # rows 0, 2 and 2 again
    dense = [3.0, 0.0, 0.0, 0.0, 3.0, 3.0, 0.0, 0.0]
    for limit in (2.0, 1e4):
        sparse = bench.target.make_sparse([0, 2, 2], values, (4, 2), "float32")  # type: ignore[attr-defined]
        exact = bench.exact([dense], limit)
        gradient = Array(exact.gradients[0].values, (4, 2), "float32")  # type: ignore[union-attr]
        expect(bench.run([sparse], limit), Outcome((gradient,), exact.norm), 4, f"a sparse gradient, limit {limit}")


@check(
    "As many gradients come back as went in, in the same order.",
    training="Every layer is trained with the gradient of another.",
    needs=("float32", "several"),
)
def order_kept(bench: Bench) -> None:
    gradients = [[float(i), -float(i)] for i in range(1, 6)]
    expect(Outcome(bench.clip(gradients, 1e4).gradients), bench.expected(gradients), 0, "five gradients below the limit")
    after = gradients_of(bench.clip(gradients, 0.5))
    require(len(after) == 5, f"5 gradients became {len(after)}")
    expect(bench.expected(after), Outcome(bench.exact(gradients, 0.5).gradients), 4, "five gradients above the limit")
