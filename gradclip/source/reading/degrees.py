"""How a number follows the size of the gradients: a norm has degree 1, its square 2, a limit divided by it -1."""

from __future__ import annotations

import ast
from fractions import Fraction

from gradclip.source.reading.values import Constant, Value, number_of

__all__ = ["KEEPS", "LIKE", "MEASURED", "PLAIN", "SUMMED", "WEIGHTS", "WRONG", "after_call", "combined", "degree", "said"]

MEASURED = "measured:"  #: the mark of a norm, with the place of its event
PLAIN = "plain"  #: the mark of a norm of order 2 of one gradient
SUMMED = "summed"  #: the mark of a sum of such norms
WEIGHTS = "weights"  #: the mark of a norm of parameters
_DEGREE = "degree:"  #: the mark of a number that is computed from norms
_NONE = Fraction(0)
_OF_GRADIENTS = frozenset({"gradient", "norm"})
#: functions that keep the degree of a norm
KEEPS = frozenset(
    {
        *(
            "abs",
            "add_n",
            "append",
            "as_tensor",
            "cat",
            "clamp",
            "clip",
            "cpu",
            "detach",
            "extend",
            "float",
            "item",
            "max",
            "maximum",
        ),
        *("min", "minimum", "norm", "stack", "sum", "tensor", "to", "vector_norm"),
    }
)
WRONG = {Fraction(-2): "square", Fraction(-1, 2): "root"}  #: degrees that no factor of a clip has
LIKE = {"sqrt": Fraction(1, 2), "square": Fraction(2), "reciprocal": Fraction(-1), "rsqrt": Fraction(-1, 2)}


def degree(one: Value) -> Fraction | None:
    """The degree of a number, 0 for one that no gradient has a part in; None if it is not known."""
    if not one.marks:  # the usual case
        return _NONE
    found = [x for x in one.marks if x.startswith(_DEGREE)]
    if len(found) == 1:
        return Fraction(found[0][len(_DEGREE) :])
    is_free = not found and _OF_GRADIENTS.isdisjoint(one.marks) and not any(x.startswith(MEASURED) for x in one.marks)
    return _NONE if is_free else None


def said(marks: frozenset[str], of: Fraction | int | None) -> frozenset[str]:
    """What is said of a number, with another degree."""
    rest = frozenset(x for x in marks if not x.startswith(_DEGREE)) - ({PLAIN} if of != 1 else set())
    return rest if of is None or (of == 0 and rest == marks) else rest | {f"{_DEGREE}{of}"}


def combined(op: ast.operator, left: Value, right: Value) -> frozenset[str]:
    """What is said of the result of an operator."""
    marks, one, other = left.marks | right.marks, degree(left), degree(right)
    if isinstance(op, ast.Pow):
        power = number_of(right)
        is_plain = power is not None and abs(power) < 100
        return said(marks, one * Fraction(power) if one is not None and power is not None and is_plain else None)
    if isinstance(op, (ast.Mult, ast.Div)) and one is not None and other is not None:
        return said(marks, one + other if isinstance(op, ast.Mult) else one - other)
    if isinstance(op, (ast.Add, ast.Sub)):  # norm + 1e-6, 0.0 + norm
        return marks if one == other or isinstance(left, Constant) or isinstance(right, Constant) else said(marks, None)
    return said(marks, None)


def after_call(name: str, marks: frozenset[str], args: tuple[Value, ...]) -> frozenset[str]:
    """What is said of the result of a function of numbers."""
    if name in ("pow", "float_power") and len(args) > 1:
        return combined(ast.Pow(), args[-2], args[-1])
    if name in ("max", "maximum") and any(number_of(x) == 1 for x in args) and any(degree(x) == -1 for x in args):
        return marks | {"least"}  # max(1, limit / norm)
    if name == "sum" and PLAIN in marks and any(degree(x) == 1 for x in args):  # sum(p.grad.norm() for p in parameters)
        return marks - {PLAIN} | {SUMMED}
    if name in LIKE:
        known = [x for x in args if degree(x) != 0]
        if len(known) == 1 and (of := degree(known[0])) is not None:
            return said(marks, of * LIKE[name])
    return marks if name in KEEPS else said(marks, None)
