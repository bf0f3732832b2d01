"""The normal form of an expression: data, and the algebra of products."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

__all__ = ["ONE", "Form", "is_tiny", "last_word", "power_of_norm", "product"]

_TINY = re.compile(r"\b_*(eps\w*|tiny|delta|min_norm)$", re.IGNORECASE)
_LONGEST = 100  #: characters of a name that says something


@dataclass(frozen=True, slots=True)
class Form:
    """The normal form of an expression."""

    op: str  #: "number", "name", "norm", "product", "sum", "min", "max", "choice"
    parts: tuple[Form, ...] = ()
    value: object = None  #: a number; a name; a product's exponents; a norm's kind: "l2", "rms", "name" or another order
    node: cst.CSTNode | None = field(default=None, compare=False)  #: the expression; of a norm, the tensors
    wide: bool = field(default=False, compare=False)  #: whether a norm is over several tensors

    @property
    def number(self) -> float:
        """Of a "number", its value."""
        assert isinstance(self.value, (int, float))
        return float(self.value)

    @property
    def powers(self) -> tuple[float, ...]:
        """The exponent of each part of a "product"."""
        assert isinstance(self.value, tuple)
        return self.value

    def contains(self, other: Form) -> bool:
        """Whether another form is this one or a part of it."""
        return self == other or any(part.contains(other) for part in self.parts)


ONE = Form("number", value=1.0)


def product(*factors: tuple[Form, float]) -> Form:
    """The product of powers.

    >>> product((Form("number", value=4.0), -0.5)).value, product((Form("number", value=-4.0), 0.5)).op  # a complex number
    (0.5, 'name')
    """
    powers: dict[Form, float] = defaultdict(float)
    constant = 1.0
    for form, power in _flat(factors):
        if form.op == "number":
            try:
                constant *= float(form.value) ** power  # type: ignore[arg-type]
            except (ArithmeticError, TypeError, ValueError):
                return Form("name", value="?")
            if isinstance(constant, complex):
                return Form("name", value="?")
        else:
            powers[form] += power
    for form in list(powers):
        if form.op in ("min", "max") and abs(powers[form]) == 1:
            power = powers.pop(form)
            rest = [*powers.items(), (Form("number", value=constant), 1.0)]
            kind = form.op if power > 0 else "max" if form.op == "min" else "min"
            return Form(kind, tuple(product((part, power), *rest) for part in form.parts))
        if form.op == "choice" and abs(powers[form]) == 1:
            power = powers.pop(form)
            rest = [*powers.items(), (Form("number", value=constant), 1.0)]
            return Form("choice", tuple(product((part, power), *rest) for part in form.parts), form.value, form.node)
    kept = {form: power for form, power in powers.items() if power}
    if constant != 1 or not kept:
        kept = {Form("number", value=constant): 1.0, **kept}
    if len(kept) == 1 and next(iter(kept.values())) == 1:
        return next(iter(kept))
    ordered = sorted(kept.items(), key=lambda item: repr((item[0].op, item[0].value, item[1])))
    return Form("product", tuple(form for form, _ in ordered), tuple(power for _, power in ordered))


def _flat(factors: Sequence[tuple[Form, float]]) -> Iterator[tuple[Form, float]]:
    for form, power in factors:
        if form.op == "product":
            yield from _flat([(part, inner * power) for part, inner in zip(form.parts, form.powers, strict=True)])
        else:
            yield form, power


def last_word(text: str) -> str:
    """The last name in a text; "" if it is too long for the name of a limit or a norm, so that no search is slow."""
    found = re.findall(r"\w+", text)
    return found[-1] if found and len(found[-1]) < _LONGEST else ""


def is_tiny(form: Form) -> bool:
    """Whether it is 0 or an epsilon."""
    if form.op == "number":
        return isinstance(form.value, float) and form.value <= 1e-3
    return form.op == "name" and _TINY.search(str(form.value)) is not None


def power_of_norm(form: Form) -> float:
    """The exponent of a norm that is alone in a form; 0 if it is not."""
    if form.op == "norm":
        return 1
    if form.op == "product" and len(form.parts) == 1 and form.parts[0].op == "norm":
        return form.powers[0]
    return 0
