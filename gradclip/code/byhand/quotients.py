"""Quotients of a limit and a norm: the algebra of a clip's coefficient, on normal forms (``algebra``)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gradclip.code.byhand.algebra import Form, last_word, product

__all__ = ["Clip", "differ", "has_limit", "is_trivial", "leaves", "names", "norm_of", "ratio", "text", "unbounded"]

_LIMIT = re.compile(  # max_norm, l2_norm_clip, grad_clip, clip_value, threshold; the atomic groups keep long names linear
    r"(?>\w*?(max|clip|threshold|limit|cutoff))\w*norm|(?>\w*?norm)\w*(clip|max|limit|threshold)|(max_?)?grad(ient)?s?_?(clip\w*|norm)|"
    r"\w*clip(ping)?(_(val(ue)?|grad\w*|threshold|limit|norm|factor|coef\w*))?|max_?grad\w*|\w*threshold|(\w+_)?limit|theta|max_?length",
    re.IGNORECASE,
)


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
