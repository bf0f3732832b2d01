"""The normal form of an expression: data, the algebra of products, and quotients of a limit and a norm."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

__all__ = [
    "ONE",
    "Clip",
    "Form",
    "differ",
    "extreme",
    "has_limit",
    "is_tiny",
    "is_trivial",
    "last_word",
    "leaves",
    "names",
    "norm_of",
    "power_of_norm",
    "product",
    "ratio",
    "text",
    "unbounded",
]

_TINY = re.compile(r"(\b_*|_)eps\w*$|\b_*(tiny|delta|min_norm)$", re.IGNORECASE)
_LIMIT = re.compile(  # max_norm, l2_norm_clip, grad_clip, clip_value, threshold; the atomic groups keep long names linear
    r"(?>\w*?(max|clip|threshold|limit|cutoff))\w*norm|(?>\w*?norm)\w*(clip|max|limit|threshold)|(max_?)?grad(ient)?s?_?(clip\w*|norm)|"
    r"\w*clip(ping)?(_(val(ue)?|grad\w*|threshold|limit|norm|factor|coef\w*))?|max_?grad\w*|\w*threshold|(\w+_)?limit|theta|max_?length",
    re.IGNORECASE,
)
_LONGEST = 100  #: characters of a name that says something


@dataclass(frozen=True, slots=True)
class Form:
    """The normal form of an expression."""

    op: str  #: "number", "name", "norm", "product", "sum", "min", "max", "choice"
    parts: tuple[Form, ...] = ()
    value: object = None  #: a number; a name; a product's exponents; a norm's kind: "l2", "rms", "name" or another order
    node: cst.CSTNode | None = field(default=None, compare=False)  #: the expression; of a norm, the tensors

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


def extreme(name: str, *parts: Form, is_small: Callable[[Form], bool] = is_tiny) -> Form:
    """A minimum or a maximum, by the name of its function; a maximum with something small counts as none."""
    if name.rstrip("_") in ("min", "minimum", "clamp_max"):
        return Form("min", parts)
    kept = [part for part in parts if not is_small(part)]
    return kept[0] if len(kept) == 1 else Form("max", tuple(kept or parts))


def power_of_norm(form: Form) -> float:
    """The exponent of a norm that is alone in a form; 0 if it is not."""
    if form.op == "norm":
        return 1
    if form.op == "product" and len(form.parts) == 1 and form.parts[0].op == "norm":
        return form.powers[0]
    return 0


# ---- quotients of a limit and a norm -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clip:
    """The limit and the norm of a coefficient."""

    limit: Form
    norm: Form


def ratio(one: Form, other: Form) -> tuple[Clip, float] | None:
    """The limit and the norm in a quotient of two forms, and the sign of the norm's exponent; None if it has no single norm."""
    if {one.op, other.op} & {"min", "max", "choice"}:
        return None
    return _split(product((one, 1), (other, -1)))


def _split(form: Form) -> tuple[Clip, float] | None:
    norm = norm_of(form)
    if norm is None:
        return None
    leaf, power = norm
    return Clip(product((product((form, 1), (leaf, -power)), -1 / power)), leaf), power / abs(power)


def norm_of(form: Form) -> tuple[Form, float] | None:
    """The norm in a form, with its exponent; a norm in a denominator first."""
    if form.op == "norm":
        return form, 1.0
    if form.op == "product":
        found = [(part, power) for part, power in _factors(form) if part.op == "norm"]
        return min(found, key=lambda item: item[1], default=None)
    inner = (norm_of(part) for part in form.parts) if form.op in ("min", "max", "choice", "sum") else ()
    return next((one for one in inner if one is not None), None)


def unbounded(form: Form, is_gradient: Callable[[Form], bool]) -> Clip | None:
    """The limit over the norm that multiplies gradients, in a product without a bound."""
    found = _split(form) if form.op == "product" else None
    if found is None:
        return None
    kept = [(part, power) for part, power in _factors(found[0].limit) if not is_gradient(part)]
    return Clip(product(*kept), found[0].norm) if kept else None


def _factors(form: Form) -> list[tuple[Form, float]]:
    return [*zip(form.parts, form.powers, strict=True)] if form.op == "product" else [(form, 1.0)]


def leaves(form: Form) -> Iterator[Form]:
    """The names and the norms in a form."""
    if form.op in ("name", "norm"):
        yield form
    else:
        for part in form.parts:
            yield from leaves(part)


def names(form: Form) -> Iterator[str]:
    """The texts of the leaves."""
    return (str(leaf.value if leaf.op == "name" else leaf.parts[0].value) for leaf in leaves(form))


def has_limit(form: Form) -> bool:
    """Whether a limit has a limit's name."""
    return any(_LIMIT.fullmatch(last_word(name)) for name in names(form))


def is_trivial(limit: Form) -> bool:
    """Whether a limit is 0, one without a norm, or an epsilon."""
    if limit.op == "number":
        return not 1e-3 < abs(limit.number) < 1e9
    return limit.op == "name" and re.search(r"\beps|tiny", str(limit.value)) is not None


def differ(one: Form, other: Form) -> bool:
    """Whether two limits surely differ: by a factor that is a number, or as two names, or a name and a number."""
    factor = product((one, 1), (other, -1))
    if factor.op == "number":
        return not math.isclose(factor.number, 1.0)
    return {one.op, other.op} <= {"name", "number"}


def text(form: Form) -> str:
    """A form, as code."""
    if form.op == "number":
        return f"{form.value:g}"
    if form.op == "norm":
        return str(form.parts[0].value) if form.value == "name" else f"norm({form.parts[0].value})"
    if form.op != "product":
        return str(form.value)
    above = [text(part) for part, power in _factors(form) if power > 0] or ["1"]
    below = [text(part) for part, power in _factors(form) if power < 0]
    return " / ".join([" * ".join(above), *below])
