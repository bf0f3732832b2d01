"""What an expression probably is: a gradient, a norm of gradients, a coefficient made from one. The algebra of these facts.

Unlike a form (``forms``), a fact is a guess that costs little: it decides what is named, and never what is rewritten.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from gradclip.source.reading.program import last
from gradclip.source.source import words

__all__ = [
    "NOTHING",
    "Fact",
    "Value",
    "by_name",
    "either",
    "is_tiny",
    "measured",
    "power",
    "product",
    "quotient",
    "root",
    "summed",
]

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_GRADIENTS = words("grad grads gradient gradients gvs g gs update updates dparams dtheta")
_ELSE = words(
    "norm norms clip clipping max min requires no use has with enable is scaler scale fn func step steps hess hessian loss "
    "penalty rate rates num count len length type accumulation checkpoint checkpointing action actions"
)
_BY_HAND = re.compile(r"d([A-Z]\w*|[wb]\d?)")  # dW, db
_NORM = re.compile(
    r"(?!\w*(clip|max|min|limit|thresh|type|ord|layer|batch|param))\w*((grads?|gradients?|global|total)_?(l2_?)?norm|gnorm|g_norm)\w*",
    re.IGNORECASE,
)
_MEASURES = re.compile(
    r"(?!\w*(clip|normal|layer|batch|group_norm|instance|param|weight))\w*norms?(_\w+)?|l2|(\w*_|reduce)?rms|calc_norm\w*",
    re.IGNORECASE,
)
_TINY = re.compile(r"(?i).*(eps|tiny|delta|smallest)\w*")
_SQUARED = re.compile(r"sq|square", re.IGNORECASE)


class Fact:
    """What an expression probably is. The facts are bits: an ``enum.Flag`` takes twice as long."""

    GRADIENT = 1
    SQUARES = 2  #: the square of each element
    SUM = 4  #: a sum of squares
    NORM = 8
    COEFFICIENT = 16  #: something over a norm
    DIVISOR = 32  #: a norm over something
    CAPPED = 64  #: the smaller one of a norm and a limit
    GRADIENTS = 128  #: of a norm, and of what is made from it: that it is one of gradients
    BOUNDED = 256
    TEST = 512  #: it compares a norm, or a coefficient, with a limit
    RATIO = 1024  #: of another norm and one of gradients: a trust ratio, or the coefficient of an adaptive clip
    EARLIER = 2048  #: of such a quotient: the other norm is one of gradients too, such as an average of earlier ones
    OVER = 4096  #: which elements of a gradient are over a limit
    UNDER = 8192  #: which are not
    MEASURED = SUM | NORM
    SCALES = COEFFICIENT | DIVISOR


_ALONG = Fact.GRADIENTS | Fact.BOUNDED


@dataclass(frozen=True, slots=True)
class Value:
    """The facts of an expression, and the division that made a coefficient, or a gradient of unit length, of it."""

    facts: int = 0
    division: ast.expr | ast.AugAssign | None = None

    def has(self, facts: int) -> bool:
        """Whether one of some facts is known."""
        return bool(self.facts & facts)

    def only(self, facts: int) -> Value:
        return Value(self.facts & facts, self.division)

    def with_(self, facts: int) -> Value:
        return Value(self.facts | facts, self.division)

    def over(self, division: ast.expr | ast.AugAssign | None) -> Value:
        return Value(self.facts, division)


NOTHING = Value()


def either(values: Iterable[Value]) -> Value:
    """What one of several values may be."""
    found = NOTHING
    for one in values:
        if not found.facts:
            found = one
        elif one.facts:
            found = Value(found.facts | one.facts, found.division or one.division)
    return found


@functools.lru_cache(maxsize=1 << 14)
def by_name(name: str) -> Value:
    """What the name of something says of it."""
    if _NORM.fullmatch(name):
        return Value(Fact.GRADIENTS | (Fact.SUM if _SQUARED.search(name) else Fact.NORM))
    parts = {word.lower() for word in _WORDS.findall(name)}
    if (parts & _GRADIENTS and not parts & _ELSE) or _BY_HAND.fullmatch(name):
        return Value(Fact.GRADIENT)
    return NOTHING


def product(one: Value, other: Value) -> Value:
    """A product; that of a gradient and a coefficient is a gradient, and whoever asks sees the two."""
    if one.has(Fact.GRADIENT) or other.has(Fact.GRADIENT):
        return Value(Fact.GRADIENT)
    if one.has(Fact.MEASURED) and other.has(Fact.MEASURED):
        return Value(Fact.SUM | (one.facts | other.facts) & _ALONG)
    return either((one, other))


def quotient(one: Value, other: Value, division: ast.expr | ast.AugAssign) -> Value:
    """A quotient; that of two norms is a coefficient only under a bound of 1."""
    if one.has(Fact.CAPPED) and other.has(Fact.NORM):
        return Value(Fact.COEFFICIENT | Fact.BOUNDED | one.facts & Fact.GRADIENTS, division)
    if one.has(Fact.MEASURED) and other.has(Fact.MEASURED):
        known = other.facts & Fact.GRADIENTS
        if not (known and one.has(Fact.NORM) and other.has(Fact.NORM)):
            return NOTHING  # a cosine
        return Value(known | Fact.RATIO | (Fact.EARLIER if one.has(Fact.GRADIENTS) else 0), division)
    if one.has(Fact.GRADIENT):
        return Value(Fact.GRADIENT, division if other.has(Fact.NORM) else None)
    if other.has(Fact.DIVISOR):
        return Value(Fact.COEFFICIENT | (one.facts | other.facts) & _ALONG, other.division)
    if other.has(Fact.NORM):
        return Value(Fact.COEFFICIENT | (one.facts | other.facts) & _ALONG, division)
    if one.has(Fact.NORM):
        return Value(one.facts | Fact.DIVISOR, division)
    return one


def power(base: Value, exponent: ast.expr, division: ast.expr) -> Value:
    """A power: a square, a root, an inverse, or that of a norm of any order."""
    number = exponent.value if isinstance(exponent, ast.Constant) else None
    if number == 2:
        if base.has(Fact.NORM):
            return Value(Fact.SUM | base.facts & _ALONG)
        return Value(Fact.SQUARES | (Fact.GRADIENTS if base.has(Fact.GRADIENT) else 0))
    if number == 0.5 or (number is None and base.has(Fact.SUM)):
        return root(base)
    if isinstance(exponent, ast.UnaryOp) and base.has(Fact.NORM):
        return Value(Fact.COEFFICIENT | base.facts & _ALONG, division)
    return Value(Fact.SUM | base.facts & _ALONG) if number is None and base.has(Fact.NORM) else NOTHING


def root(base: Value) -> Value:
    return Value(Fact.NORM | base.facts & _ALONG) if base.has(Fact.SUM) else NOTHING


def summed(parts: Value) -> Value:
    """A sum over elements or over gradients."""
    if parts.has(Fact.SQUARES | Fact.SUM):
        return Value(Fact.SUM | parts.facts & _ALONG)
    return parts.only(Fact.NORM | Fact.GRADIENT | _ALONG)


@functools.lru_cache(maxsize=1 << 12)
def _measures(function: str) -> bool:
    return _MEASURES.fullmatch(function) is not None


def measured(function: str, parts: Value) -> Value:
    """What a function that is called like a norm returns; a clip returns the norm before it."""
    if function.startswith("clip_grad_norm"):
        return Value(Fact.NORM | Fact.GRADIENTS)
    if not _measures(function):
        return NOTHING
    known = Fact.GRADIENTS if parts.has(Fact.GRADIENT | Fact.GRADIENTS) or by_name(function).facts else 0
    return Value((Fact.SUM if _SQUARED.search(function) else Fact.NORM) | known)


def is_tiny(node: ast.expr) -> bool:
    """Whether it is 0, an epsilon, or no limit at all."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, (int, float)) or abs(node.value) <= 1e-3
    if isinstance(node, ast.UnaryOp):
        return is_tiny(node.operand)
    if isinstance(node, ast.Call):
        return all(map(is_tiny, node.args))
    return _TINY.fullmatch(last(node)) is not None
