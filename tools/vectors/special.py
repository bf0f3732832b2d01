"""The vectors of one or two norm functions only: orders, axes, a known norm, units, examples, the root mean square."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gradclip.conformance.array import COMPLEX
from gradclip.conformance.load import NumpyNumber
from gradclip.core.rule import Scope
from gradclip.natives import Native
from vectors.array import Array, array, sparse
from vectors.common import INF, NAN, NO_ROWS, P, Q
from vectors.spec import Also, Operation, Spec, named, takes
from vectors.units import examples, root_mean_squares, units

_SMALL = array([[0.0, 0.0], [6e-31, 8e-31]])
BOTH = (array([3.0, -4.0]), Q)


def special(operation: Operation) -> Iterator[Spec]:
    """The vectors of a function for its own arguments and its kind of norm."""
    native, rule = operation.native, operation.native.rule()
    if rule.mean:
        yield from root_mean_squares(native.limit)
    if rule.scope is Scope.EXAMPLE:
        yield from examples(native.limit)
    for argument, vectors in _BY_ARGUMENT.items():
        if argument in native.arguments:
            yield from vectors(native.limit)
    if "norm_type" in native.arguments:
        yield from _orders(native)


# ---- torch and Paddle: orders -------------------------------------------------------------------------------------------


def _ordered(limit: str) -> Callable[..., Spec]:
    return named("", limit, "norm_type", "error_if_nonfinite")


def _orders(native: Native) -> Iterator[Spec]:
    spec = _ordered(native.limit)
    for order in (1, 2.0, INF, 0):
        for dtype in ("float16", "bfloat16", "float64", "complex64"):
            what = f"order {order}, {dtype}"
            yield spec(f"order-{order}-{dtype}", what, [array([3.0, -4.0], dtype), array([[1.0, 2.0]], dtype)], 0.5, order)
        yield spec(f"order-{order}-none", f"order {order}, with None", [None, array([8.0, -4.0]), None], 2.0, order)
        yield spec(f"order-{order}-nan", f"order {order}, NaN", [array([NAN, 1.0]), P], 1.0, order)
        yield spec(f"order-{order}-inf", f"order {order}, infinity", [array([INF, 1.0]), P], 1.0, order)
        yield spec(f"order-{order}-zeros", f"order {order}, zeros", [array([0.0, -0.0])], 1.0, order)
        yield spec(f"order-{order}-unclipped", f"order {order}, unchanged", BOTH, 100.0, order)
        yield spec(
            f"order-{order}-matrix", f"order {order}, over all elements", [array([[1.0, -2.0], [3.0, -4.0]])], 0.5, order
        )
    for order in (1, INF):
        extreme = [array([3e38, 3e38, 1.0])]
        yield spec(f"order-{order}-extreme", f"order {order}, large values", extreme, 1.0, order)
    for order in (0.5, 1.5, 3.0, 10.0, -INF, -1.0, -0.5):
        yield spec(f"order-{order}", f"order {order}", [array([3.0, -4.0]), array([[1.0], [12.0]])], 0.5, order, ulp=8)
    yield from _sparse(native)
    if takes(native, 1.0, norm_type=-1.0):
        yield from _infinite(native.limit)
    yield spec("order-3-complex64", "order 3 of absolute values", [array([3 + 4j, 1j], "complex64")], 1.0, 3, ulp=8)
    yield spec("order-4-float16", "order 4: the powers overflow float16", [array([20.0, 10.0], "float16")], 1.0, 4)
    yield spec("order-1-text", "the order as text", BOTH, 2.0, "1")
    yield spec("order-true", "the order True is 1", BOTH, 2.0, True)
    empty = [array([]), P]
    yield spec("order-1-empty", "order 1, an empty gradient among others", empty, 1.0, 1)
    yield spec("order-0-empty", "order 0, an empty gradient among others", empty, 0.5, 0)
    as_nothing = Also("The largest of no elements may count as 0.", gradients=(array([]), array([3.0, 4.0])), norm=4.0)
    yield spec("order-inf-empty-unclipped", "infinity, an empty gradient among others", empty, 100.0, INF, also=(as_nothing,))
    yield from _raising(native.limit)


def _sparse(native: Native) -> Iterator[Spec]:
    """A sparse gradient has zeros where it stores nothing: they count nothing, and everything for a negative order."""
    spec = _ordered(native.limit)
    rows = [[3.0, -1.0], [2.0, 4.0], [-1.0, -2.0]]
    some, every = sparse([2, 0, 2], rows, 3), sparse([1, 2, 0], rows, 3)
    several = sparse([1, 0, 1, 2], [[2.0, -2.0], [2.0, 4.0], [1.0, 1.0], [-1.0, -2.0]], 3)
    for order in (INF, 0, *((-INF, -1.0) if takes(native, 1.0, norm_type=-1.0) else ())):
        more: dict[str, Any] = {"ulp": 8} if order == -1.0 else {}
        name, what = f"order-{order}-sparse", f"order {order}, a sparse gradient"
        yield spec(f"{name}-nothing", f"{what} that stores nothing", [NO_ROWS, P], 0.5, order, **more)
        yield spec(f"{name}-nothing-alone", f"{what} that stores nothing, alone", [NO_ROWS], 0.5, order)
        yield spec(f"{name}-some", f"{what} that stores some rows, one twice", [some], 0.5, order, **more)
        yield spec(f"{name}-every", f"{what} that stores every row", [every, P], 0.25, order, **more)
        yield spec(f"{name}-several", f"{what} that stores every row, one in parts", [several], 0.25, order, **more)


def _infinite(limit: str) -> Iterator[Spec]:
    """Negative orders: the smallest numbers count most, and an infinite one counts nothing beside others."""
    spec, infinite = _ordered(limit), array([INF, -INF])
    for order in (-0.5, -1.0, -2.0):
        what = f"order {order}"
        more: dict[str, Any] = {"ulp": 8}
        yield spec(f"order-{order}-inf", f"{what}, nothing finite", [infinite], 1.0, order)
        yield spec(f"order-{order}-inf-two", f"{what}, nothing finite in two", [array([INF]), array([[INF]])], 1.0, order)
        among = [array([INF, 3.0, -4.0]), array([[1.0], [INF]])]
        yield spec(f"order-{order}-inf-among", f"{what}, infinity among others", among, 0.125, order, **more)
        yield spec(f"order-{order}-inf-one", f"{what}, one gradient infinite", [array([1.0]), infinite], 0.5, order, **more)
        yield spec(f"order-{order}-inf-zero", f"{what}, infinity and 0", [array([INF, 0.0]), P], 1.0, order)
        yield spec(f"raises-{order}-inf", f"{what}, nothing finite, to be told", [infinite], 1.0, order, True)
        yield spec(f"raises-not-{order}", f"{what}, some are finite, to be told", [infinite, P], 1.0, order, True, **more)
    for dtype in ("float16", "bfloat16", "float64"):
        yield spec(f"order--2.0-inf-{dtype}", f"order -2.0, nothing finite, {dtype}", [array([INF, INF], dtype)], 1.0, -2.0)


def _raising(limit: str) -> Iterator[Spec]:
    """error_if_nonfinite, and the epsilon."""
    spec = _ordered(limit)
    for order in (1, 2, INF):
        for value in (NAN, INF):
            what = f"order {order}, {value}, to be told"
            yield spec(f"raises-{order}-{value}", what, [P, array([value, 1.0])], 1.0, order, True)
    yield spec("raises-not", "finite, to be told if it were not", BOTH, 6.5, 2.0, True)
    yield spec("raises-not-extreme", "finite, its squares are not", [array([3e30, 4e30])], 1e30, 2.0, True)
    beyond = [array([60000.0, -60000.0], "float16")]
    yield spec("raises-not-float16", "finite, beyond float16, to be told", beyond, 1.0, 2.0, True)
    yield spec("raises-not-float16-unclipped", "finite, beyond float16, within the limit", beyond, 1e5, 2.0, True)
    yield spec("raises-limit-inf", "a limit of infinity, to be told", [array([INF, 1.0])], INF, 2.0, True)
    yield spec("raises-off", "not finite, and not to be told", [array([INF, 1.0])], 1.0, 2.0, False)
    epsilon = ("Epsilon",)
    yield spec("epsilon-small", "a norm of the size of the epsilon", [array([3e-6, 4e-6])], 1e-6, 2.0, flags=epsilon)
    yield spec(
        "epsilon-above", "a norm just under the limit, with the epsilon above it", [array([1e-6])], 1.5e-6, 2.0, flags=epsilon
    )
    yield spec("epsilon-zero", "a zero norm and a limit below the epsilon", [array([0.0])], 1e-7, 2.0, flags=epsilon)
    yield spec("epsilon-float64", "the epsilon, in float64", [array([3.0, 4.0], "float64")], 1.0, 2.0, flags=epsilon)
    yield spec("epsilon-order-1", "the epsilon, with order 1", [array([2.5e-6, 2.5e-6])], 1e-6, 1, flags=epsilon)


# ---- TensorFlow: axes, and a known norm ---------------------------------------------------------------------------------


_MATRIX = array([[-3.0, 0.0, 0.0], [4.0, 0.0, 3.0]])


def _axes(limit: str) -> Iterator[Spec]:
    spec = named("axes-", limit, "axes")
    axes: Any
    matrix = _MATRIX
    yield spec("none", "None is all axes", [matrix], 4.0, None)
    for axes in (0, 1, -1, -2):
        yield spec(str(axes), f"the axis {axes}", [matrix], 4.0, axes)
        yield spec(f"list-{axes}", f"the axis {axes} in a list", [matrix], 4.0, [axes])
    for axes in ([0, 1], [1, 0], [-1, 0], [-2, -1]):
        yield spec("all-" + "-".join(map(str, axes)), f"all axes as {axes}", [matrix], 4.0, axes)
    yield spec("empty", "none: each element by itself", [matrix], 3.5, [])
    cube = array([[[1.0, 2.0], [2.0, 4.0], [4.0, 8.0]], [[-8.0, 4.0], [-4.0, 2.0], [-2.0, 1.0]]])
    for axes in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [-1, -3], [0, 1, 2]):
        yield spec("cube-" + "-".join(map(str, axes)), f"{axes} of three axes", [cube], 4.0, axes)
    yield spec("cube-unclipped", "norms within the limit", [cube], 100.0, [1])
    yield spec("vector", "the only axis", [P], 1.0, [0])
    yield spec("vector-negative", "the only axis, from the end", [P], 1.0, -1)
    yield spec("length-1", "an axis of length 1", [array([[3.0], [4.0]])], 1.0, [1])
    yield spec("no-rows", "the axis of no rows", [Array("float32", (0, 3), ())], 1.0, [0])
    yield spec("scalar-empty", "no axes of no axes", [array(-5.0)], 1.0, [])
    yield from _axes_and_limits(limit)


def _axes_and_limits(limit: str) -> Iterator[Spec]:
    """Wrong axes, and limits of every kind over the right ones."""
    spec, matrix = named("axes-", limit, "axes"), _MATRIX
    wrong = {"too-large": 2, "too-small": -3, "list-too-large": [0, 2], "twice": [0, 0], "twice-negative": [1, -1]}
    for name_of_wrong, axes in wrong.items():
        yield spec(f"wrong-{name_of_wrong}", f"two axes, of which {axes} are none", [matrix], 4.0, axes, convention=True)
    yield spec("wrong-scalar", "a gradient without axes has no axis 0", [array(5.0)], 1.0, [0], convention=True)
    for dtype in ("float16", "bfloat16", "float64", *COMPLEX):
        yield spec(f"rows-{dtype}", f"the norms of rows, {dtype}", [array([[6.0, 8.0], [0.3, 0.4]], dtype)], 5.0, [1])
    yield spec("zero-row", "a row of zeros", [array([[0.0, 0.0], [3.0, 4.0]])], 1.0, [1])
    yield spec("nan-row", "NaN stays in its row", [array([[NAN, 1.0], [3.0, 4.0]])], 1.0, [1])
    yield spec("inf-row", "infinity stays in its row", [array([[INF, 1.0], [3.0, 4.0]])], 1.0, [1])
    yield spec("limit-zero", "a limit of 0, a row of zeros", [array([[0.0, 0.0], [3.0, 4.0]])], 0.0, [1])
    yield spec("limit-inf", "a limit of infinity", [matrix], INF, [1])
    yield spec("limit-negative", "a negative limit counts as 0", [matrix], -1.0, [1])
    extreme = array([[3e30, 4e30], [3e-30, 4e-30]])
    yield spec("extreme-rows", "squares that overflow in one row and vanish in another", [extreme], 1.0, [1])
    small = Also("The coefficient of the first row is below the least number of float32.", gradients=(_SMALL,))
    yield spec("extreme-coefficients", "a coefficient that float32 does not have", [extreme], 1e-30, [1], also=(small,))
    yield spec("limit-rows", "a limit for each row", [matrix], array([[1.5], [2.5]]), [1])
    yield spec("limit-columns", "a limit for each column", [matrix], array([[2.5, 1.0, 1.5]]), [0])
    yield spec("limit-vector", "a limit for each of the last axis", [matrix], array([2.5, 1.0, 1.5]), [0])
    yield spec("limit-elements", "a limit for each element", [matrix], array([[1.5, 1.0, 1.0], [2.0, 1.0, 5.0]]), [0, 1])
    yield spec("limit-all-axes", "a limit for each row, and one norm", [matrix], array([[1.0], [50.0]]), None)
    yield spec("limit-zero-row", "a limit of 0 for one row", [matrix], array([[0.0], [2.5]]), [1])
    yield spec("limit-too-long", "limits that do not fit", [matrix], array([1.0, 2.0]), [1], convention=True)
    rows = array([[3.0, 4.0], [0.0, 12.0]], layout="transposed")
    yield spec("transposed", "rows of a transposed gradient", [rows], 2.0, [1])
    yield spec("several", "two gradients, each by its own rows", [matrix, array([[6.0, 8.0]])], 4.0, [1])


def _known(limit: str) -> Iterator[Spec]:
    spec = named("use-norm-", limit, "use_norm")
    yield spec("larger", "larger than the norm is", [P], 4.0, array(10.0))
    yield spec("smaller", "smaller than the limit: unchanged", [P], 4.0, array(1.0))
    yield spec("equal", "the norm itself", [P, Q], 6.5, array(13.0))
    yield spec("zero", "a norm of 0", [P], 1.0, array(0.0))
    yield spec("inf", "an infinite norm makes NaN", [P], 1.0, array(INF))
    yield spec("nan", "a NaN norm makes NaN", [P], 1.0, array(NAN))
    yield spec("inf-limit-inf", "an infinite norm and a limit of infinity", [P], INF, array(INF))
    yield spec("number", "a Python float", [P], 4.0, 10.0, heading="use_norm a Python float")
    yield spec("int", "a Python int", [P], 4.0, 10, flags=("AnyNumber",))
    yield spec("numpy", "a NumPy number", [P], 4.0, NumpyNumber("float32", 10.0), flags=("AnyNumber",))
    yield spec("float64", "a float64 norm of float32 gradients", [P], 4.0, array(10.0, "float64"), flags=("AnyNumber",))
    for dtype in ("float16", "bfloat16"):
        half = array([3.0, 4.0], dtype)
        heading = f"use_norm in {dtype}" if dtype == "float16" else None
        yield spec(dtype, "a norm as a native's first stage returns it", [half], 4.0, array(10.0, dtype), heading=heading)
        yield spec(f"{dtype}-inf", f"an infinite {dtype} norm makes NaN", [half], 4.0, array(INF, dtype))
    yield spec("beyond-float16", "a norm beyond float16, of its gradients", [array([300.0, 400.0], "float16")], 1e3, array(1e5))
    yield spec("none", "with None among the gradients", [P, None], 4.0, array(10.0))
    yield spec("float64-gradients", "float64", [array([3.0, 4.0], "float64")], 4.0, array(10.0, "float64"))
    yield spec("negative", "a negative norm", [P], 4.0, array(-5.0), convention=True)
    yield spec("not-none", "None: the norm is measured", [P], 1.0, None)


def _skipped(limit: str) -> Iterator[Spec]:
    spec = named("skip-", limit, "auto_skip_clip")
    yield spec("clipped", "above the limit", [P, Q], 6.5, True)
    yield spec("unclipped", "within the limit", [P, Q], 100.0, True)
    yield spec("equal", "at the limit", [P], 5.0, True)
    yield spec("nan", "NaN is not above the limit: unchanged", [array([NAN, 4.0]), P], 1.0, True)
    yield spec("inf", "infinity is above the limit", [array([INF, 4.0])], 1.0, True)
    yield spec("off", "False, the default", [P], 1.0, False)
    yield spec("none", "with None", [None, P], 1.0, True)


#: an argument of a native -> the vectors of the natives that have it
_BY_ARGUMENT = {"axes": _axes, "use_norm": _known, "auto_skip_clip": _skipped, "parameters": units}
