"""What a search has noted of a function or class: the facts of its names, and what scales or replaces gradients there."""

from __future__ import annotations

import ast

from gradclip.source.byhand.facts import Fact, Value

__all__ = ["EARLIER", "Noted", "Place"]

EARLIER = "earlier"  #: among the numbers that a function compares norms with: an average of earlier norms
Place = ast.expr | ast.AugAssign


class Noted:
    """The facts of one function or class, and the places in it that clip, or may."""

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}  #: of names and attributes
        self._given: dict[str, dict[int, Value]] = {}  #: what the unit's functions get, by position
        self._returned: dict[str, Value] = {}
        self._functions: list[str] = []  #: the names of the functions around the current place
        self._compared: dict[str, set[object]] = {}  #: function -> numbers that it compares norms with; None: another
        self._found: dict[Place, bool] = {}  #: division -> whether something bounds it
        self._masked: set[Place] = set()  #: what replaces the elements of a gradient over a limit, or drops them

    @property
    def _here(self) -> str:
        return self._functions[-1] if self._functions else ""

    def _reached(self, made: Value) -> None:
        """Note a coefficient that reaches a product with gradients, and whether something bounds it."""
        division = made.division
        if not made.has(Fact.GRADIENTS) or division is None:
            return
        limits = {one for function in self._functions or [""] for one in self._compared.get(function, ())}
        over = division.left if isinstance(division, ast.BinOp) else None
        if isinstance(over, ast.Constant) and None not in limits:
            limits &= {1, over.value}  # `1 / norm` where the norm is over 5 is no clip
        self._found[division] = self._found.get(division, False) or made.has(Fact.BOUNDED) or bool(limits)

    def _multiplied(self, one: Value, other: Value) -> None:
        for gradient, scale in ((one, other), (other, one)):
            if gradient.has(Fact.GRADIENT) and scale.has(Fact.COEFFICIENT):
                self._reached(scale)
            elif gradient.has(Fact.GRADIENT) and scale.has(Fact.CAPPED):  # of unit length, times the smaller of norm and limit
                self._reached(scale.with_(Fact.BOUNDED).over(gradient.division))
            elif gradient.has(Fact.GRADIENT) and scale.has(Fact.RATIO):
                compared = self._compared.get(self._here, ())
                if 1 in compared or scale.has(Fact.BOUNDED) or (scale.has(Fact.EARLIER) and EARLIER in compared):
                    self._reached(scale)

    def _divided(self, one: Value, other: Value, division: Place) -> None:
        if one.has(Fact.GRADIENT) and other.has(Fact.NORM | Fact.DIVISOR):
            self._reached(Value(other.facts, other.division or division))

    def _noted(self, node: Place, is_masked: bool) -> None:
        if is_masked:
            self._masked.add(node)
