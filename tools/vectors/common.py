"""The vectors of every norm function, besides the recorded cases."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gradclip.conformance.array import COMPLEX, FLOATS
from gradclip.conformance.load import NumpyNumber, SameAs
from vectors.array import Array, array, fill, sparse
from vectors.recorded import LARGE, UNWRITABLE
from vectors.spec import Also, Operation, Spec, named

P, Q = array([3.0, 4.0]), array([0.0, 12.0])  # norms 5 and 12, together 13
NAN, INF = math.nan, math.inf
NO_ROWS = Array("float32", (4, 2), (), rows=())  #: a step that looked up no row of an embedding


def common(operation: Operation) -> Iterator[Spec]:
    """A function's share of each part."""

    spec = named("", operation.limit)
    parts = (_dtypes, _shapes, _containers, _sparse, _layouts, _limits, _extremes, _not_finite, _large)
    for part in parts:
        yield from part(spec, operation)


def _dtypes(spec: Any, operation: Operation) -> Iterator[Spec]:
    for dtype in FLOATS:
        yield spec(f"clipped-{dtype}", "every result is a number of the dtype", [array([[6.0, 0.0], [0.0, -8.0]], dtype)], 5.0)
        yield spec(f"unclipped-{dtype}", "unchanged to the bit", [array([0.1, -0.2, 0.7], dtype)], 7.0)
        yield spec(f"two-{dtype}", "two gradients", [array([3.0, 4.0], dtype), array([0.0, 12.0], dtype)], 6.5)
    for dtype in COMPLEX:
        yield spec(f"unclipped-{dtype}", "unchanged to the bit", [array([0.1 + 0.2j, 0.5 - 0.3j], dtype)], 7.0)
        yield spec(f"two-{dtype}", "two gradients", [array([3j, 4.0], dtype), array([0.0, 12j], dtype)], 6.5)
    yield spec("four-dtypes", "every float dtype at once", [array([1.0, 1.0], dtype) for dtype in FLOATS], 0.5)
    yield spec("real-and-complex128", "the wider real dtype is complex128's", [P, array([12j], "complex128")], 6.5)
    for dtype in ("int32", "int64", "bool"):
        yield spec(f"unclipped-{dtype}", "a norm of whole numbers is not defined", [array([1, 0], dtype)], 10.0)


def _shapes(spec: Any, operation: Operation) -> Iterator[Spec]:
    yield spec("one-element", "one element", [array([-8.0])], 2.0)
    yield spec("one-by-one", "a matrix of one element", [array([[8.0]])], 2.0)
    yield spec("row", "a matrix of one row", [array([[3.0, 0.0, -4.0]])], 2.5)
    yield spec("column", "a matrix of one column", [array([[3.0], [0.0], [-4.0]])], 2.5)
    yield spec("rank-3", "three axes", [array([[[1.0, -2.0], [3.0, 4.0]], [[5.0, 6.0], [-7.0, 8.0]]])], 2.0)
    yield spec("rank-4", "four axes", [array([[[[1.0, -2.0]], [[3.0, 4.0]]], [[[5.0, 6.0]], [[-7.0, 8.0]]]])], 2.0)
    many = [array(2.0), array([2.0, -4.0]), array([[4.0, 1.0], [2.0, 2.0]]), array([[[4.0]]]), array([])]
    yield spec("many", "many shapes in one call", many, 1.0)
    yield spec("many-unclipped", "many shapes in one call, none of them clipped", many, 100.0)
    yield spec("scalar-unclipped", "without axes, and unchanged", [array(-0.7)], 7.0)
    yield spec("empty-matrix", "a matrix without rows, and one without columns", [_empty((0, 3)), _empty((3, 0))], 1.0)


def _empty(shape: tuple[int, ...]) -> Array:
    return Array("float32", shape, ())


def _containers(spec: Any, operation: Operation) -> Iterator[Spec]:
    yield spec("none-first", "None before a gradient", [None, P], 1.0)
    yield spec("none-last", "None after a gradient", [P, None], 1.0)
    yield spec("none-unclipped", "None, and nothing is clipped", [P, None, Q], 100.0)
    yield spec("nine", "nine gradients", [array([float(i), -float(i)]) for i in range(9)], 3.0)
    heading = "the same parameter twice" if operation.name.endswith(".clip_grad_norm_") else None
    yield spec("twice-of-three", "the first gradient again at the end", [P, Q, SameAs(0)], 6.5, heading=heading)
    yield spec("twice-unclipped", "twice, and nothing is clipped", [P, SameAs(0)], 100.0)
    yield spec("equal", "two gradients that are equal and not the same object", [P, P], 1.0)
    if operation.name.startswith(("torch.", "paddle.")) or operation.name == "tensorflow.clip_by_global_norm":
        heading = {
            "paddle.clip_grad_norm_": "a generator",
            "paddle.ClipGradByGlobalNorm": "a generator",
            "tensorflow.clip_by_global_norm": "of a generator",
        }.get(operation.name)
        yield spec("iterator", "an iterator is consumed once", [P, Q], 6.5, iterator=True, heading=heading)
        yield spec("iterator-unclipped", "an iterator, and nothing is clipped", [P], 100.0, iterator=True)
        yield spec("iterator-none", "None in an iterator", [None, P], 1.0, iterator=True)
        yield spec("iterator-empty", "an iterator of nothing", [], 1.0, iterator=True)


def _sparse(spec: Any, operation: Operation) -> Iterator[Spec]:
    rows = [[3.0, 0.0], [2.0, 0.0], [2.0, 0.0]]  # merged 5, unmerged sqrt(17)
    heading = {
        "tensorflow.clip_by_norm": "IndexedSlices with duplicate rows",
        "keras.clipnorm": "IndexedSlices with duplicate rows",
        "keras.global_clipnorm": "IndexedSlices with duplicate rows",
        "paddle.ClipGradByGlobalNorm": "SelectedRows",
        "torch.clip_grad_norm_": "sparse, uncoalesced",
    }.get(operation.name)
    twice = sparse([0, 2, 2], rows, 4)
    yield spec("sparse-duplicates", "duplicate rows are merged before the norm", [twice], 1.0, heading=heading)
    heading = "IndexedSlices, None and dense" if operation.name == "tensorflow.clip_by_global_norm" else None
    yield spec("sparse-none-dense", "sparse, None and dense in one call", [twice, None, array([12.0])], 6.5, heading=heading)
    heading = "sparse, coalesced" if operation.name == "torch.clip_grad_norm_" else None
    once = sparse([2, 0], [[3.0, 0.0], [0.0, 4.0]], 4)
    yield spec("sparse", "rows in any order, none of them twice", [once], 1.0, heading=heading)
    yield spec("sparse-unclipped", "sparse, and unchanged", [sparse([1, 3], [[0.1, 0.2], [0.3, 0.4]], 5)], 7.0)
    yield spec("sparse-duplicates-unclipped", "merged, and unchanged", [sparse([1, 1], [[0.5, 0.25], [0.25, 0.5]], 3)], 7.0)
    opposite = sparse([1, 1, 0], [[9.0, -9.0], [-9.0, 9.0], [3.0, 4.0]], 3)
    yield spec("sparse-cancels", "duplicate rows that cancel count nothing", [opposite], 10.0)
    yield spec("sparse-nan", "a NaN in a sparse gradient", [sparse([1], [[NAN, 1.0]], 3)], 1.0)
    yield spec("sparse-nothing", "a sparse gradient that stores nothing is zeros", [NO_ROWS, P], 1.0)
    yield spec("sparse-nothing-alone", "nothing but zeros that are not stored", [NO_ROWS], 1.0)


def _layouts(spec: Any, operation: Operation) -> Iterator[Spec]:
    matrix = [[3.0, 0.0], [0.0, 4.0], [0.0, 12.0]]
    also = (UNWRITABLE,) if operation.native.in_place else ()
    for layout in ("transposed", "strided"):
        for dtype in ("float16", "float32", "float64"):
            what = f"{layout} in memory, {dtype}"
            yield spec(f"{layout}-{dtype}", what, [array(matrix, dtype, layout)], 6.5)
        yield spec(f"{layout}-unclipped", f"{layout}, and unchanged", [array(matrix, "float32", layout)], 100.0)
    yield spec("expanded-matrix", "one value in memory", [array([[2.0, 2.0], [2.0, 2.0]], layout="expanded")], 1.0, also=also)
    mixed = [array(matrix, layout="transposed"), array([0.0, 0.0, 84.0], layout="strided")]
    yield spec("layouts", "two layouts in one call", mixed, 42.5)


def _limits(spec: Any, operation: Operation) -> Iterator[Spec]:
    number = ("AnyNumber",)
    f64 = "clip_norm a float64 tensor" if operation.name == "tensorflow.clip_by_global_norm" else None
    yield spec(
        "limit-float64-array", "a float64 array, float32 gradients", [P], array(2.5, "float64"), heading=f64, flags=number
    )
    heading = "clip_norm an int tensor" if operation.name == "tensorflow.clip_by_global_norm" else None
    yield spec("limit-int32-array", "an int32 array, float32 gradients", [P], array(2, "int32"), heading=heading, flags=number)
    heading = "max_norm a float32 array and a bfloat16 gradient" if operation.name == "optax.clip_by_global_norm" else None
    half = array([3.0, 4.0], "bfloat16")
    yield spec("limit-array-bfloat16", "a float32 array, bfloat16 gradients", [half], array(2.5), heading=heading, flags=number)
    heading = "max_norm a NumPy float64 and a bfloat16 gradient" if operation.name == "optax.clip_by_global_norm" else None
    f64_number = NumpyNumber("float64", 2.5)
    yield spec("limit-numpy-bfloat16", "a NumPy number, bfloat16 gradients", [half], f64_number, heading=heading, flags=number)
    yield spec("limit-numpy-float32", "a NumPy float32", [P], NumpyNumber("float32", 2.5), flags=number)
    yield spec("limit-numpy-int64", "a NumPy int64", [P], NumpyNumber("int64", 2), flags=number)
    heading = "clip_norm a NaN tensor" if operation.name == "tensorflow.clip_by_norm" else None
    yield spec("limit-array-nan", "an array that is NaN", [P], array(NAN), heading=heading)
    yield spec("limit-array-inf", "an array that is infinite", [P], array(INF))
    yield spec("limit-array-above", "an array that is above the norm", [P], array(7.5))
    yield spec("limit-int-above", "an int that is above the norm", [P], 7)
    yield spec("limit-int-large", "an int beyond 32 bits", [P], 2**40)
    yield spec("limit-text-unknown", "text that is no number", [P], "one")
    if operation.takes_text:
        yield spec("limit-text-inf", "text that is infinity", [P], "inf")
    yield spec("limit-just-above", "a little above the norm", [P], 5.001)
    yield spec("limit-just-below", "a little below the norm", [P], 4.999, flags=("Boundary",))
    yield spec("limit-inf-float16", "infinity, float16", [array([3.0, 4.0], "float16")], INF)
    yield spec("limit-inf-two", "infinity, two gradients", [P, Q], INF)
    yield spec("limit-zero-float64", "0, float64", [array([3.0, -4.0], "float64")], 0.0)
    yield spec("limit-zero-two", "0, of which one gradient is 0", [array([0.0, 0.0]), P], 0.0)


def _extremes(spec: Any, operation: Operation) -> Iterator[Spec]:
    largest = array([3.4028234663852886e38])
    yield spec("largest-float32", "the largest finite number", [largest], 8.0)
    yield spec("largest-float32-unclipped", "the largest finite number, unchanged", [largest], 1e39)
    yield spec("largest-float64", "the largest finite number", [array([1.7976931348623157e308], "float64")], 8.0)
    yield spec("largest-bfloat16", "squares overflow as in float32", [array([3e38, 0.0], "bfloat16")], 8.0)
    yield spec("largest-float16", "the largest finite number", [array([65504.0], "float16")], 1.0)
    vanished = Also("The device flushes the coefficient, which is below the least normal number.", coefficient=0.0)
    yield spec("subnormal-coefficient", "a coefficient below the least normal number", [largest], 1.0, also=(vanished,))
    yield spec("far-apart", "squares that overflow and vanish in one gradient", [array([3e30, 4e-30])], 1e30)
    yield spec("far-apart-two", "squares that overflow and vanish in two", [array([3e30]), array([4e-30])], 1e30)
    yield spec("small-two", "squares that vanish in two gradients", [array([3e-30]), array([4e-30])], 1e-30)
    yield spec("small-many", "a thousand squares that vanish", [fill(2.0**-80, (1024,))], 2.0**-76)
    yield spec("large-many", "a thousand squares that overflow together", [fill(2.0**63, (1024,))], 2.0**60)
    normal = array([2.0**-126, 0.0])
    yield spec("least-normal-unclipped", "the least normal number, unchanged", [normal], 1.0)
    yield spec("subnormal-result", "a result below the least normal number", [array([3.0, 4.0, 0.25])], 2.0**-123)
    halves = [array([2.0**-20, -(2.0**-24)], "float16")]
    yield spec("subnormal-float16-unclipped", "subnormal float16 is unchanged", halves, 1.0)


def _not_finite(spec: Any, operation: Operation) -> Iterator[Spec]:
    for dtype in ("float16", "bfloat16", "float64"):
        yield spec(f"nan-{dtype}", "NaN", [array([NAN, 1.0], dtype)], 1.0)
        yield spec(f"inf-{dtype}", "infinity", [array([-INF, 1.0], dtype)], 1.0)
    yield spec("nan-and-inf", "NaN in one gradient and infinity in another", [array([NAN]), array([INF]), P], 1.0)
    yield spec(
        "inf-unclipped-others", "infinity in one gradient, the other within the limit", [array([INF]), array([0.5])], 1.0
    )
    yield spec("inf-limit-zero", "infinity and a limit of 0", [array([INF, 1.0])], 0.0)
    yield spec("nan-limit-zero", "NaN and a limit of 0", [array([NAN, 1.0])], 0.0)


def _large(spec: Any, operation: Operation) -> Iterator[Spec]:
    if operation.name in (
        "torch.clip_grad_norm_",
        "tensorflow.clip_by_norm",
    ):  # few, because each takes as long as a hundred others
        yield spec("large-unclipped", "over 2**20 elements, unchanged", [LARGE], 1e5)
    if operation.is_joint:
        yield spec("large-float16", "over 2**20 elements of float16", [fill(1.0, (1025 * 1025,), "float16")], 1.0)
        for dtype in ("float16", "bfloat16"):
            beyond = [fill(256.0, (65536,), dtype), array([256.0], dtype)]
            yield spec(f"norm-beyond-{dtype}", "a finite norm of 65,536.5, beyond float16", beyond, 1024.0)
            yield spec(f"norm-beyond-{dtype}-unclipped", "a norm beyond float16, within the limit", beyond, 1e5)
