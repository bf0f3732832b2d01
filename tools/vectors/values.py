"""The vectors of the functions that clip by value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gradclip.conformance.array import COMPLEX, FLOATS
from gradclip.conformance.load import NumpyNumber, SameAs
from vectors.array import Array, array, fill, sparse
from vectors.common import INF, NAN
from vectors.recorded import UNWRITABLE
from vectors.spec import Also, Operation, Spec, named

V = array([3.0, -4.0, 0.5, -0.5, 1.0, -1.0, 0.0, -0.0])
#: the headings that are listed in ``departed``
_NEGATIVE = {"optax.clip": "max_delta -1", "torch.clip_grad_value_": "-1", "keras.clipvalue": "-1"}
_NOT_A_NUMBER = {"optax.clip": "max_delta nan", "torch.clip_grad_value_": "nan", "tensorflow.clip_by_value": "bounds of NaN"}
_UNORDERED = "Only the order of the lower and the upper bound decides, and devices differ in it."


def by_value(operation: Operation) -> Iterator[Spec]:
    """A function's vectors: with a bound on both sides, then its own."""

    def spec(id: str, comment: str, gradients: Sequence[Any], bound: Any, **more: Any) -> Spec:
        return Spec(id, comment, gradients, _bounds(operation, bound), **more)

    for part in (_plain, _bounds_of, _dtypes, _containers):
        yield from part(spec, operation)
    if not operation.limit:
        yield from _two_bounds()
    if "min" in operation.native.arguments:
        yield from _max_and_min()


def _bounds(operation: Operation, bound: Any) -> dict[str, Any]:
    if operation.limit:
        return {operation.limit: bound}
    return {"clip_value_min": _minus(bound), "clip_value_max": bound}


def _minus(bound: Any) -> Any:
    if isinstance(bound, Array):
        return Array(bound.dtype, bound.shape, tuple(-x for x in bound.values))
    if isinstance(bound, NumpyNumber):
        return NumpyNumber(bound.dtype, -bound.value)
    return bound if isinstance(bound, str) else -bound


def _plain(spec: Any, operation: Operation) -> Iterator[Spec]:
    yield spec("both-sides", "above, below, between and at the bounds", [V], 1.0)
    yield spec("unclipped", "unchanged to the bit", [V], 8.0)
    yield spec("all-clipped", "every element", [array([[2.0, -3.0], [5.0, -7.0]])], 0.5)
    yield spec("rounded-bound", "a bound that the dtype does not hold exactly", [V], 0.1)
    yield spec("nan", "NaN stays NaN", [array([NAN, 3.0, -3.0])], 1.0)
    yield spec("inf", "infinity is clipped", [array([INF, -INF, 0.25])], 1.0)
    yield spec(
        "negative-zero", "the sign of a zero within the bounds is kept", [array([-0.0, 0.0])], 1.0, flags=("NegativeZero",)
    )
    yield spec("subnormal", "subnormal numbers within the bounds are kept", [array([1e-40, -1e-45, 3.0])], 1.0)
    yield spec("largest", "the largest finite numbers", [array([3.4028234663852886e38, -3.4028234663852886e38])], 1e30)
    yield spec("scalar", "without axes", [array(-5.0)], 2.0)
    yield spec("rank-3", "three axes", [array([[[3.0, -0.5]], [[-4.0, 0.25]]])], 1.0)
    yield spec("empty", "no elements", [array([])], 1.0)
    yield spec("empty-matrix", "a matrix without columns", [Array("float32", (3, 0), ())], 1.0)
    if operation.name in ("torch.clip_grad_value_", "optax.clip"):
        yield spec("large", "over 2**20 elements", [fill(-3.0, (1025 * 1025,))], 0.75)


def _bounds_of(spec: Any, operation: Operation) -> Iterator[Spec]:
    off = operation.native.at_zero == "off"
    yield spec("limit-inf", "infinity changes nothing", [array([3.0, INF, NAN, -INF])], INF)
    what = "0 is off" if off else "0 makes zeros"
    yield spec("limit-zero", what, [array([3.0, -4.0])], 0.0, ulp=None if off else 1)
    yield spec("limit-int", "an int", [V], 2)
    yield spec("limit-numpy-float64", "a NumPy number", [V], NumpyNumber("float64", 1.5))
    yield spec("limit-array", "an array of one number", [V], array(1.5))
    yield spec("limit-beyond", "a bound beyond the dtype", [V], 1e300, flags=("WideArithmetic",))
    half = [array([3.0, -4.0], "float16")]
    yield spec("limit-beyond-float16", "a bound beyond float16", half, 1e6, flags=("WideArithmetic",))
    yield spec("limit-subnormal", "a subnormal bound", [V], 1e-40, also=(Also(_FLUSHES, flushed=True),))
    yield spec("limit-text", "text that is no number", [V], "one")
    if operation.limit:
        yield spec("limit-negative", "a negative bound", [V], -1.0, heading=_NEGATIVE.get(operation.name))
    yield spec("limit-nan", "a bound of NaN", [V], NAN, heading=_NOT_A_NUMBER.get(operation.name))


_FLUSHES = "The device flushes numbers below the least normal one to 0."


def _dtypes(spec: Any, operation: Operation) -> Iterator[Spec]:
    for dtype in FLOATS:
        yield spec(f"clipped-{dtype}", f"a bound that is rounded to {dtype}", [array([3.0, -4.0, 0.05], dtype)], 0.1)
        yield spec(f"unclipped-{dtype}", "unchanged to the bit", [array([0.1, -0.7], dtype)], 1.0)
    for dtype in COMPLEX:
        yield spec(f"order-{dtype}", "complex numbers have no order", [array([3j, 1.0], dtype)], 1.0, convention=True)
    for dtype in ("int32", "int64"):
        yield spec(f"whole-{dtype}", "whole bounds of whole numbers", [array([30, -40, 1], dtype)], 2.0)
        listed = {"paddle.clip_grad_value_": f"1.5 of {dtype}"}
        if dtype == "int32":
            listed["optax.clip"] = "integer leaves"
        what = "a bound that no integer has"
        yield spec(
            f"fraction-{dtype}", what, [array([3, -4, 1], dtype)], 1.5, heading=listed.get(operation.name), convention=True
        )
    yield spec("mixed", "several dtypes in one call", [array([3.0], dtype) for dtype in FLOATS], 1.5)


def _containers(spec: Any, operation: Operation) -> Iterator[Spec]:
    yield spec("several", "each element by itself, whatever the gradient", [V, array([[5.0]]), array([-0.25])], 1.0)
    yield spec("none", "None stays where it is", [None, V, None], 1.0)
    headings = {"torch.clip_grad_value_": ("of nothing", "of parameters without gradients")}.get(operation.name, (None, None))
    yield spec("nothing", "no gradients", [], 1.0, heading=headings[0])
    yield spec("all-none", "nothing but None", [None, None], 1.0, heading=headings[1])
    yield spec("twice", "the same gradient twice", [V, SameAs(0)], 1.0)
    if operation.name.startswith(("torch.", "paddle.")):
        yield spec("iterator", "an iterator is consumed once", [V, array([7.0])], 1.0, iterator=True)
    heading = "IndexedSlices with duplicate rows" if operation.name in ("keras.clipvalue", "tensorflow.clip_by_value") else None
    rows = sparse([0, 2, 2], [[3.0, 0.0], [0.75, 0.0], [0.75, 0.0]], 4)
    yield spec("sparse-duplicates", "duplicate rows are added before they are clipped", [rows], 1.0, heading=heading)
    yield spec("sparse", "rows in any order", [sparse([2, 0], [[3.0, -0.5], [-4.0, 0.5]], 3)], 1.0)
    for layout in ("transposed", "strided"):
        yield spec(layout, f"{layout} in memory", [array([[3.0, -0.5], [-4.0, 0.25]], layout=layout)], 1.0)
    also = (UNWRITABLE,) if operation.native.in_place else ()
    yield spec("expanded", "one value in memory", [array([2.0, 2.0, 2.0], layout="expanded")], 1.0, also=also)


def _two_bounds() -> Iterator[Spec]:
    spec, swapped = named("bounds-", "clip_value_min", "clip_value_max"), ("SwappedBounds",)
    yield spec("different", "the lower bound comes first", [V], -2.0, 1.0, flags=swapped)
    yield spec("positive", "both above 0", [V], 0.25, 2.0, flags=swapped)
    yield spec("negative", "both below 0", [V], -2.0, -0.25)
    yield spec("equal", "one number", [array([3.0, -4.0, 0.5])], 0.5, 0.5)
    yield spec("lower-only", "no upper bound", [V], -0.75, INF)
    yield spec("upper-only", "no lower bound", [V], -INF, 0.75)
    upper_wins = Also(_UNORDERED, gradients=(array([1.0, 1.0, 1.0]),))
    crossed = [array([3.0, -4.0, 2.0])]
    yield spec(
        "crossed", "the lower bound wins where they cross", crossed, 4.0, 1.0, also=(upper_wins,), flags=("CrossedBounds",)
    )
    yield spec("nan-lower", "a lower bound of NaN", [V], NAN, 1.0, convention=True)
    yield spec("nan-upper", "an upper bound of NaN", [V], -1.0, NAN, convention=True)
    matrix = array([[3.0, -4.0, 0.5], [-3.0, 4.0, -0.5]])
    lower, upper = array([[-1.0], [-2.0]]), array([0.25, 1.0, 2.0])
    yield spec("rows", "a lower bound for each row", [matrix], lower, 2.0)
    yield spec("columns", "an upper bound for each column", [matrix], -2.0, upper)
    yield spec("both", "bounds of two shapes", [matrix], lower, upper)
    yield spec(
        "too-large",
        "a bound of more elements than the gradient",
        [array([1.0, 2.0])],
        array([[0.0], [1.0]]),
        2.0,
        convention=True,
    )
    yield spec("int32", "different bounds of integers", [array([30, -40, 1], "int32")], -3, 2)


def _max_and_min() -> Iterator[Spec]:
    spec, swapped = named("bounds-", "max", "min"), ("SwappedBounds",)
    yield spec("different", "the upper bound comes first", [V], 1.0, -2.0, flags=swapped)
    yield spec("positive", "both above 0", [array([3.0, -4.0, 0.15])], 0.2, 0.1, flags=swapped)
    yield spec("negative", "both below 0", [V], -0.25, -2.0)
    yield spec("equal", "one number", [array([3.0, -4.0, 0.5])], 0.5, 0.5)
    yield spec("lower-only", "no upper bound", [V], INF, -0.75)
    yield spec("upper-only", "no lower bound", [V], 0.75, -INF)
    yield spec("zero-upper", "0 with a lower bound", [array([3.0, -4.0])], 0.0, -1.0, ulp=1)
    yield spec("none", "None: minus the upper one", [V], 1.5, None)
    yield spec("crossed", "bounds that cross are an error", [V], 1.0, 2.0, flags=("CrossedBounds",), convention=True)
    yield spec("nan-lower", "a lower bound of NaN", [V], 1.0, NAN, convention=True)
    yield spec("zero", "0 without a lower bound", [V], 0.0, None, convention=True)
    yield spec("int32", "different bounds of integers", [array([30, -40, 1], "int32")], 2, -3)
