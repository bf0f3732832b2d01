"""What the functions of all libraries compute, by their last names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from gradclip.source.bind import keywords
from gradclip.source.resolve import Resolver
from gradclip.source.source import words

__all__ = [
    "BOUNDS",
    "CASTS",
    "CHOICES",
    "CLAMPS",
    "COMPARES",
    "DOTS",
    "EXTREMES",
    "FIRST",
    "FLAT",
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
    "bounds",
    "lax_clamp",
]

_LOW, _HIGH = words("min a_min min_value clip_value_min"), words("max a_max max_value clip_value_max")
BOUNDS = _LOW | _HIGH
FIRST = words("input_tensor input x a tensor inputs t_list")  #: the names of a first argument

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
COMPARES: Mapping[str, int] = {
    **dict.fromkeys(("greater", "greater_equal", "gt", "ge"), 1),
    **dict.fromkeys(("less", "less_equal", "lt", "le"), -1),
}


def bounds(
    given: Sequence[cst.BaseExpression], told: Mapping[str, cst.BaseExpression]
) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None]:
    """The lower and the upper bound of a clamp, whose first argument is the tensor; None for one that it does not get."""
    low = next((value for name, value in told.items() if name in _LOW), given[1] if len(given) > 1 else None)
    high = next((value for name, value in told.items() if name in _HIGH), given[2] if len(given) > 2 else None)
    return low, high


def lax_clamp(call: cst.Call, resolver: Resolver) -> list[tuple[str, cst.BaseExpression]]:
    """The arguments of ``jax.lax.clamp(min, x, max)`` as any other clamp has them, the tensor first; none of another call."""
    if resolver.name(call.func) != "jax.lax.clamp":
        return []
    given = (one.value for one in call.args if one.keyword is None)
    told = dict(zip(("min", "x", "max"), given, strict=False)) | keywords(call)
    return [(name if name != "x" else "", told[name]) for name in ("x", "min", "max") if name in told]
