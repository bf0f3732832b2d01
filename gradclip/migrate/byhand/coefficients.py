"""The coefficient of a clip, read exactly: ``min(1, limit / norm)`` times a tensor, however the source bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import libcst as cst

from gradclip.migrate.byhand.exact import Exact
from gradclip.source.bind import number
from gradclip.source.byhand.algebra import ONE, Form, product, text
from gradclip.source.found import Context
from gradclip.source.source import root

__all__ = ["EPSILON", "Clipped", "Coefficients", "is_short"]

EPSILON = 1e-6  #: torch's
_LOST = 1e-7  #: an epsilon up to this one is lost in rounding


@dataclass(frozen=True, slots=True)
class Clipped:
    """A clip that was read exactly."""

    limit: str
    norm: Form
    epsilon: float


class Coefficients:
    """Reads the coefficients of one source."""

    def __init__(self, context: Context, exact: Exact) -> None:
        self._source, self._resolver, self._exact = context.source, context.resolver, exact

    def clip(self, form: Form, tensor: Form, site: cst.CSTNode) -> Clipped | None:
        """The clip that a form is of a tensor, by its own norm or by that of its collection."""
        made = product((form, 1), (tensor, -1))
        if made.op not in ("min", "choice") or len(made.parts) != 2:
            return None
        for first, (one, other) in ((True, made.parts), (False, made.parts[::-1])):
            found = self._quotient(one) if other == ONE else None
            if found is None:
                continue
            limit, norm, epsilon = found
            if made.op == "choice" and not _is_over(made.value, limit, norm, -1 if first else 1):
                continue
            wanted = (tensor,) if norm.value == "one" else tensor.parts
            shown = self._limit(limit, site) if norm.parts == wanted and norm.value in ("one", ("all", tensor.value)) else ""
            return Clipped(shown, norm, epsilon) if shown and not _has(limit, tensor) else None
        return None

    def _quotient(self, form: Form) -> tuple[Form, Form, float] | None:
        """The limit, the norm and the epsilon of a quotient."""
        if form.op != "product":
            return None
        for part, power in zip(form.parts, form.powers, strict=True):
            if power != -1:
                continue
            norm, epsilon = part, 0.0
            if part.op == "sum" and part.parts[0].op == "norm":
                value = self._number(part.parts[1])
                norm, epsilon = part.parts[0], -1.0 if value is None else value
            if norm.op == "norm" and (epsilon == EPSILON or 0 <= epsilon <= _LOST):
                return product((form, 1), (part, 1)), norm, epsilon
        return None

    def _number(self, form: Form) -> float | None:
        if form.op == "number":
            return form.number
        place = self._exact.certain.place(form.node) if isinstance(form.node, cst.Name) else None
        value = self._exact.certain.value(place)
        return number(value) if value is not None else None

    def _is_meant(self, node: cst.CSTNode, site: cst.CSTNode, around: set[cst.CSTNode]) -> bool:
        """Whether an expression means the same at the site: it is in its scope, or reads a name of this scope."""
        names = [one for one in (node, *self._source.between(cst.Name, *self._source.span(node))) if isinstance(one, cst.Name)]
        bound = [place for one in names for place in self._resolver.assigned_at(one)]
        if any(site in self._source.ancestors(place) for place in bound):
            return False  # another value for each item
        if site in self._source.ancestors(node) or self._source.function(node) in around:
            return True
        first = root(node)
        places = self._resolver.assigned_at(first) if isinstance(first, cst.Name) else ()
        return bool(places) and all(self._source.function(place) in around for place in places)

    def _limit(self, form: Form, site: cst.CSTNode) -> str:
        """The text of a limit; "" if it has no short one at the site."""
        parts = form.parts if form.op == "product" else (form,)
        bare = [part.parts[0] if part.op == "cast" else part for part in parts]
        around = {site, *self._source.ancestors(site)}
        for part in bare:
            if part.op == "number" and 0 < part.number == float(f"{part.number:g}"):
                continue  # `text` writes it with all of its digits
            inside = part.node is not None and self._is_meant(part.node, site, around)
            if part.op != "name" or not inside or not (len(bare) == 1 or is_short(part.node)):
                return ""
        powers = form.powers if form.op == "product" else (1.0,)
        return text(Form("product", tuple(bare), powers)) if all(abs(power) == 1 for power in powers) else ""


def _is_over(sides: object, limit: Form, norm: Form, sign: int) -> bool:
    """Whether the larger side of a comparison over the smaller one is the norm over the limit; the inverse for a sign of 1."""
    assert isinstance(sides, tuple)
    larger, smaller = sides
    return product((_without(larger), 1), (_without(smaller), -1)) == product((_without(limit), sign), (norm, -sign))


def _without(form: Form) -> Form:
    """A side of a comparison without its epsilon, which moves the bound by as little."""
    if form.op == "sum" and form.parts[0].op == "norm":
        return form.parts[0]
    if form.op == "product":
        return product(*((_without(part), power) for part, power in zip(form.parts, form.powers, strict=True)))
    return form.parts[0] if form.op == "cast" else form


def _has(form: Form, tensor: Form) -> bool:
    return form == tensor or any(_has(part, tensor) for part in form.parts)


def is_short(node: cst.CSTNode | None) -> TypeGuard[cst.BaseExpression]:
    """Whether an expression can be written once more."""
    return isinstance(node, (cst.Name, cst.Attribute, cst.Subscript, cst.Call))
