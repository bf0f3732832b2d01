"""The result of an operator on values of which nothing else is known: what it is a product of."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gradclip.source.reading import degrees, mends, scales
from gradclip.source.reading.values import SCALED, Constant, Product, Thing, Value, number_of, scaled_by

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["value"]


def value(machine: Machine, node: ast.BinOp, left: Value, right: Value) -> Value:
    """``loss * scale``, ``1 / scale``, ``sigma * limit * noise``."""
    marks = degrees.combined(node.op, left, right)
    scaler = scaled_by(left) or scaled_by(right)
    if scales.SCALE in marks and isinstance(node.op, ast.Mult):  # loss * scaler.get_scale()
        scaler = scaler or f"{SCALED}{machine.shown(node)[1:-1]}"
    if scaler:
        marks |= {scaler}
    marks |= mends.of_noise(marks, (left, right))
    token = machine.token(type(node.op).__name__, left.token, right.token)
    if isinstance(node.op, ast.FloorDiv) and (one := number_of(left)) is not None and (other := number_of(right)):
        return Constant(token, value=one // other, name=getattr(left, "name", ""))
    if isinstance(node.op, ast.Div) and isinstance(left, Product):
        return Product(token, marks, left.sides)
    if isinstance(node.op, ast.Div) and number_of(left) == 1:
        return Product(token, marks, frozenset({("1/", right.token)}))
    if isinstance(node.op, ast.Mult):
        names = (x.name for x in (left, right) if isinstance(x, Constant) and x.name)
        return Product(token, marks, frozenset({left.token, right.token, *names}))
    return Thing(token, marks)
