"""The vectors of optax's own norms: the root mean square, units, examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gradclip.conformance.array import COMPLEX
from gradclip.conformance.load import SameAs
from vectors.array import Array, array
from vectors.common import INF, NAN, P
from vectors.spec import Spec, named

__all__ = ["examples", "root_mean_squares", "units"]


def root_mean_squares(limit: str) -> Iterator[Spec]:
    spec = named("rms-", limit)
    yield spec("equal", "the root mean square is the limit", [array([2.0, -2.0, 2.0, -2.0])], 2.0)
    yield spec("below", "the norm is above, the root mean square within the limit", [array([1.0] * 16)], 1.5)
    yield spec("above", "four times the limit", [array([8.0, -8.0, 8.0, 8.0])], 2.0)
    yield spec("sizes", "the same values, of which there are more and more", [array([4.0] * n) for n in (1, 2, 9, 33)], 2.0)
    yield spec("zeros", "zeros count as elements", [array([4.0, 0.0, 0.0, 0.0])], 1.0)
    yield spec("matrix", "the mean is over all elements", [array([[1.0, 7.0], [5.0, 5.0]])], 2.5)
    for value in (-1.0, NAN):
        yield spec(
            f"limit-{value}", f"a limit of {value}", [P], value, heading=f"threshold {'nan' if value != value else '-1'}"
        )
    yield spec("limit-zero-zeros", "a limit of 0, two zeros", [array([0.0, 0.0])], 0.0, heading="threshold 0, zeros")
    infinite = "threshold inf, an infinite element"
    yield spec("limit-inf-inf", "a limit of infinity, an infinite element", [array([INF, 1.0])], INF, heading=infinite)


def _unit(
    limit: str, id: str, comment: str, g: Any, w: Any, clipping: Any, eps: Any = None, axis: Any = None, **more: Any
) -> Spec:
    gradients, parameters = (tuple(x) if isinstance(x, (list, tuple)) else (x,) for x in (g, w))
    arguments = {limit: clipping, "eps": eps, "axis": axis}
    given = {key: value for key, value in arguments.items() if value is not None}
    flags = ("Units", *more.pop("flags", ()))
    return Spec(f"unit-{id}", comment, gradients, given, parameters=parameters, flags=flags, **more)


def units(limit: str) -> Iterator[Spec]:
    spec = partial(_unit, limit)
    yield spec("vector", "a vector is one unit", P, array([0.0, 2.0]), 0.5)
    yield spec("scalar", "a number is one unit", array(-8.0), array(4.0), 0.5)
    matrix, weights = array([[3.0, 0.3], [4.0, 0.4]]), array([[1.0, 0.0], [0.0, 2.0]])
    yield spec("columns", "each column is a unit", matrix, weights, 1.0)
    yield spec("row", "a matrix of one row is a vector", array([[3.0, 4.0]]), array([[1.0, 0.0]]), 0.5)
    yield spec("column", "a matrix of one column is a vector", array([[3.0], [4.0]]), array([[0.0], [2.0]]), 0.5)
    ones = array([[[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]])
    cube = array([[[3.0, 1.0], [0.0, 0.5]], [[4.0, 1.0], [2.0, 0.5]]])
    yield spec("rank-3", "of three axes the first", cube, ones, 0.5)
    kernel = array([[[[3.0, 0.1], [4.0, 0.1]]], [[[12.0, 0.1], [84.0, 0.1]]]])  # (2, 1, 2, 2): norms 85.1 and 0.2
    half = array([[[[0.5, 0.5], [0.5, 0.5]]], [[[0.5, 0.5], [0.5, 0.5]]]])
    yield spec("rank-4", "of four axes all but the output channels", kernel, half, 0.5)
    five = Array("float32", (1, 2, 1, 1, 2), (3.0, 0.25, 4.0, 0.25))
    yield spec("rank-5", "of five axes all but the output channels", five, Array("float32", five.shape, (1.0,) * 4), 0.5)
    six = Array("float32", (1, 1, 1, 2, 1, 2), (3.0, 0.25, 4.0, 0.25))
    yield spec("rank-6", "of six axes none is known", six, six, 0.5, convention=True)
    yield spec("rank-6-axis", "of six axes those that are named", six, six, 0.5, axis=[3])
    yield spec("axis", "each row is a unit", matrix, weights, 1.0, axis=[1])
    yield spec("axis-negative", "each row is a unit, from the end", matrix, weights, 1.0, axis=-1)
    yield spec("axis-both", "the matrix is one unit", matrix, weights, 1.0, axis=[0, 1])
    yield from _limits_of_units(spec, matrix, weights)


def _limits_of_units(spec: Callable[..., Spec], matrix: Array, weights: Array) -> Iterator[Spec]:
    """eps, the smallest divisor, numbers that are not finite, and shapes that differ."""
    yield spec("eps", "a parameter of zeros counts as 1e-3", P, array([0.0, 0.0]), 0.5)
    yield spec("eps-given", "a parameter of zeros counts as much as is said", P, array([0.0, 0.0]), 0.5, eps=2.0)
    yield spec("eps-above", "a small parameter counts as much as is said", P, array([0.25, 0.0]), 0.5, eps=1.0)
    yield spec("eps-zero", "a parameter of zeros, and nothing to count it as", P, array([0.0, 0.0]), 0.5, eps=0.0)
    yield spec("floor", "a gradient below the least divisor", array([3e-7, 4e-7]), array([1e-3, 0.0]), 1e-4)
    yield spec("floor-small", "far below the least divisor", array([3e-10, 4e-10]), array([0.0, 0.0]), 1e-7)
    yield spec("zero-gradient", "a gradient of zeros", array([0.0, -0.0]), array([3.0, 4.0]), 0.5)
    yield spec("zero-column", "a column of zeros", array([[3.0, 0.0], [4.0, 0.0]]), weights, 0.5)
    yield spec("equal", "the norm is the limit", P, array([0.0, 10.0]), 0.5)
    yield spec("unclipped", "within the limit", P, array([30.0, 40.0]), 0.5)
    yield spec("clipping-zero", "a clipping of 0", P, P, 0.0)
    yield spec("clipping-inf", "a clipping of infinity only measures", P, P, INF)
    infinite = "clipping inf, an infinite element"
    yield spec("clipping-inf-inf", "of an infinite gradient too", array([INF, 1.0]), array([1.0, 1.0]), INF, heading=infinite)
    yield spec("clipping-negative", "a negative clipping", P, P, -1.0, heading="clipping -1")
    yield spec("clipping-inf-zeros", "a clipping of infinity, all zeros", array([0.0]), array([0.0]), INF)
    yield spec("eps-negative", "a negative eps", P, P, 0.5, eps=-1.0, flags=("NegativeLimit",))
    yield spec("nan-gradient", "NaN stays in its column", array([[NAN, 3.0], [1.0, 4.0]]), weights, 1.0)
    yield spec("nan-parameter", "a parameter that is NaN", P, array([NAN, 1.0]), 0.5)
    yield spec("inf-parameter", "an infinite parameter clips nothing", P, array([INF, 1.0]), 0.5)
    yield spec("shapes", "a parameter of another shape", P, array([1.0, 2.0, 3.0]), 0.5, convention=True)
    pair = ([P, None, matrix], [array([0.0, 2.0]), None, weights])
    yield spec("several", "each by its own parameter, with None", *pair, 0.5)
    for dtype in ("float16", "bfloat16", "float64", *COMPLEX):
        yield spec(
            f"columns-{dtype}", dtype, array([[6.0, 0.25], [8.0, 0.5]], dtype), array([[1.0, 1.0], [0.0, 0.0]], dtype), 1.0
        )
    extreme = array([[3e30, 3e-30], [4e30, 4e-30]])
    yield spec(
        "extreme", "squares that overflow in one column and vanish in another", extreme, array([[1.0, 0.0], [0.0, 1.0]]), 1.0
    )
    yield spec("extreme-parameter", "a parameter whose squares overflow", array([3e30, 4e30]), array([3e25, 4e25]), 0.5)


def examples(limit: str) -> Iterator[Spec]:
    spec = named("examples-", limit, flags=("Examples",))
    batch = array([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]])
    yield spec("one", "one example", [array([[3.0, 4.0]])], 1.0)
    yield spec("three", "two of three are clipped", [batch], 1.0)
    yield spec("unclipped", "none is clipped", [batch], 100.0, ulp=4)
    yield spec("all", "all are clipped", [batch], 0.25)
    yield spec("vector", "one number an example", [array([3.0, 4.0, -0.5])], 1.0)
    yield spec("two", "one norm over both gradients of an example", [array([[3.0], [0.5]]), array([[4.0], [0.25]])], 1.0)
    yield spec("ranks", "gradients of other ranks", [array([3.0, 1.0]), array([[[4.0]], [[2.0]]])], 2.5)
    yield spec("none", "with None", [None, array([[3.0, 4.0], [6.0, 8.0]]), None], 1.0)
    yield spec("zeros", "an example of zeros", [array([[0.0, 0.0], [3.0, 4.0]])], 1.0)
    yield spec("nan", "an example whose norm is NaN is not scaled", [array([[NAN, 1.0], [3.0, 4.0]])], 1.0)
    yield spec("nan-other", "NaN in one gradient of an example", [array([[NAN], [3.0]]), array([[7.0], [4.0]])], 1.0)
    yield spec("inf", "an example whose norm is infinite", [array([[INF, 1.0], [3.0, 4.0]])], 1.0)
    yield spec("opposite-unequal", "examples that cancel in part", [array([[3.0, 4.0], [-30.0, -40.0]])], 10.0)
    yield spec(
        "extreme", "squares that overflow in one example and vanish in another", [array([[3e30, 4e30], [3e-30, 4e-30]])], 1.0
    )
    yield spec("limit-zero", "a limit of 0", [batch], 0.0)
    yield spec("limit-inf", "a limit of infinity only sums", [batch], INF, ulp=4)
    yield spec("limit-negative", "a negative limit", [batch], -1.0, heading="limit -1")
    yield spec("limit-nan", "a limit of NaN", [batch], NAN, heading="limit nan")
    yield spec("unequal", "first axes of different lengths", [array([[1.0], [2.0]]), array([[1.0]])], 1.0, convention=True)
    yield spec("scalar", "a gradient without a first axis", [array(3.0)], 1.0, convention=True)
    yield spec("scalar-among", "a gradient without a first axis among others", [batch, array(3.0)], 1.0, convention=True)
    yield spec("empty", "no examples", [Array("float32", (0, 3), ())], 1.0)
    yield spec("empty-rows", "examples without elements", [Array("float32", (2, 0), ())], 1.0)
    twice = array([[3.0, 4.0], [0.5, 0.5]])
    yield spec("twice", "the same gradient listed twice", [twice, SameAs(0)], 1.0)
    for dtype in ("float16", "bfloat16", "float64", *COMPLEX):
        yield spec(f"three-{dtype}", dtype, [array([[6.0, 8.0], [1.5, 2.0], [12.0, 16.0]], dtype)], 5.0)
    yield spec("many", "sixteen examples", [array([[float(i), 1.0] for i in range(16)])], 2.0)
    yield spec("sum-of-squares", "the sum has a norm above the limit", [array([[0.6, 0.8]] * 5)], 1.0, ulp=4)
