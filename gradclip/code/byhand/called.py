"""What a call calls, where that is certain; what functions compute; and which side of a comparison is the larger one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import libcst as cst

from gradclip.code.bind import keywords
from gradclip.code.resolve import Resolver
from gradclip.code.source import last_name, receiver, words

__all__ = [
    "CASTS",
    "CHOICES",
    "CLAMPS",
    "DOTS",
    "EXTREMES",
    "FIRST",
    "FLAT",
    "FUNCTIONS",
    "GLOBAL_NORMS",
    "JOINS",
    "LEAST",
    "LEAVES",
    "NORMS",
    "OPERATORS",
    "POWERS",
    "PRODUCTS",
    "REDUCES",
    "SUMS",
    "adds",
    "bounds",
    "larger_first",
    "read",
]

_KNOWN = re.compile(r"(numpy|jax|tensorflow|torch|paddle|keras|optax|math|builtins|cupy|operator|functools)\b")
_LOW, _HIGH = words("min a_min min_value clip_value_min"), words("max a_max max_value clip_value_max")
FIRST = words("input_tensor input x a tensor inputs t_list")  #: the names of a first argument

# what functions of all libraries compute, by their last names
CASTS = words(  #: a tensor in another dtype, in another place, or of another type
    "float tensor as_tensor to_tensor asarray array item to detach astype cast convert_to_tensor cpu clone numpy stop_gradient "
    "float32 squeeze constant full_tensor stack copy"
)
LEAVES = words("tree_leaves leaves values list tuple iter")
FLAT = words("ravel flatten reshape view")
JOINS = words("concatenate concat cat hstack")
SUMS = words("sum reduce_sum add_n fsum nansum")
NORMS = words("norm vector_norm")
GLOBAL_NORMS = words("global_norm get_total_norm tree_norm tree_l2_norm")
CHOICES = words("where select")
CLAMPS = words("clip clamp clamp_ clip_by_value")
LEAST = words("min minimum clamp_max")
EXTREMES = LEAST | words("max maximum clamp_min")
DOTS = words("vdot dot inner")
REDUCES = words("tree_reduce reduce")
PRODUCTS = {"multiply": 1, "mul": 1, "divide": -1, "true_divide": -1, "truediv": -1, "div": -1, "div_no_nan": -1}  #: exponents
POWERS = {"sqrt": 0.5, "square": 2, "rsqrt": -0.5, "reciprocal": -1}

#: 1 where the first side is the larger one, -1 where the second is
OPERATORS: Mapping[type[cst.BaseCompOp], int] = {
    cst.GreaterThan: 1,
    cst.GreaterThanEqual: 1,
    cst.LessThan: -1,
    cst.LessThanEqual: -1,
}
FUNCTIONS: Mapping[str, int] = {
    **dict.fromkeys(("greater", "greater_equal", "gt", "ge"), 1),
    **dict.fromkeys(("less", "less_equal", "lt", "le"), -1),
}
_KEEPS = ("squeeze", "all")


def read(node: cst.Call, resolver: Resolver) -> tuple[str, list[cst.BaseExpression], Mapping[str, cst.BaseExpression]]:
    """The last name of a known function or of a method, its arguments in order, and those with keywords; "" if unknown."""
    if any(argument.star for argument in node.args):
        return "", [], {}
    given = [argument.value for argument in node.args if argument.keyword is None]
    told = keywords(node)
    if not given:
        given = [told.pop(name) for name in [*told][:1] if name in FIRST]
    name = resolver.name(node.func)
    if name:
        return (name.rpartition(".")[2] if _KNOWN.match(name) else ""), given, told
    owner = receiver(node)
    if owner is not None and not resolver.names(owner).qualified:
        return last_name(node.func), [owner, *given], told
    return "", given, told


def bounds(
    given: Sequence[cst.BaseExpression], told: Mapping[str, cst.BaseExpression]
) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None]:
    """The lower and the upper bound of a clamp, whose first argument is the tensor; None for one that it does not get."""
    low = next((value for name, value in told.items() if name in _LOW), given[1] if len(given) > 1 else None)
    high = next((value for name, value in told.items() if name in _HIGH), given[2] if len(given) > 2 else None)
    return low, high


def adds(node: cst.BaseExpression, resolver: Resolver) -> bool:
    """Whether a function adds its two arguments."""
    if resolver.name(node) in ("operator.add", "jax.numpy.add"):
        return True
    body = node.body if isinstance(node, cst.Lambda) else None
    names = [one.name.value for one in node.params.params] if isinstance(node, cst.Lambda) else []
    sums = isinstance(body, cst.BinaryOperation) and isinstance(body.operator, cst.Add)
    return sums and sorted(names) == sorted(map(last_name, (body.left, body.right)))  # type: ignore[union-attr]


def larger_first(
    test: cst.BaseExpression, resolver: Resolver, value_of: Callable[[cst.Name], cst.BaseExpression | None], sign: int = 1
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The larger and the smaller side of a comparison where it holds; None for another test.

    Args:
        test: the comparison, or a name for it.
        resolver: the names of the source.
        value_of: the one value that reaches a name, or None.
        sign: -1 for the sides where the test does not hold.
    """
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return larger_first(test.expression, resolver, value_of, -sign)
    if isinstance(test, cst.Name):
        value = value_of(test)
        return larger_first(value, resolver, value_of, sign) if value is not None and not isinstance(value, cst.Name) else None
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        target = test.comparisons[0]
        return _ordered(test.left, target.comparator, sign * OPERATORS.get(type(target.operator), 0))
    if isinstance(test, cst.Call):
        name, given, _ = read(test, resolver)
        if len(given) == 1 and (name == "logical_not" or name in _KEEPS):
            return larger_first(given[0], resolver, value_of, -sign if name == "logical_not" else sign)
        if len(given) == 2:
            return _ordered(given[0], given[1], sign * FUNCTIONS.get(name, 0))
    return None


def _ordered(
    one: cst.BaseExpression, other: cst.BaseExpression, sign: int
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    if not sign:
        return None
    return (one, other) if sign > 0 else (other, one)
