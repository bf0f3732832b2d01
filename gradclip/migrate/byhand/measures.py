"""Norms, sums of squares, bounds and casts of exact forms (``exact``); None for what has no exact form."""

from __future__ import annotations

from gradclip.source.byhand.algebra import Form, is_tiny, power_of_norm, product
from gradclip.source.source import words

__all__ = ["added", "bare", "cast", "every", "flat", "is_small", "is_tensor", "norm", "says_more", "summed"]

_KEEPS = words("detach clone stop_gradient copy")  #: of these the values, the shape and the dtype stay


def is_tensor(form: Form) -> bool:
    """Whether a form can be one tensor: an opaque name, or an item."""
    return form.op in ("name", "item")


def says_more(form: Form) -> bool:
    """Whether the value of a name says more than the name: it has a norm, a bound or a list."""
    return form.op in ("norm", "min", "max", "choice", "list", "flat", "item") or any(map(says_more, form.parts))


def every(collection: Form) -> Form:
    """The list of the items of a collection."""
    return Form("list", (Form("item", (collection,)), collection))


def added(left: Form, right: Form) -> Form:
    """A sum; a square of a norm counts without an epsilon far below it."""
    one, other = sorted((left, right), key=lambda form: form.op == "number")
    if power_of_norm(one) == 2 and other.op == "number" and 0 <= other.number <= 1e-12:
        return one
    return Form("sum", (one, other))


def cast(form: Form, name: str) -> Form:
    """A tensor in another dtype or shape: its norm is the same, it is not."""
    return form if name in _KEEPS or not is_tensor(form) else Form("cast", (form,), node=form.node)


def bare(form: Form) -> Form:
    return form.parts[0] if form.op == "cast" else form


def is_small(form: Form) -> bool:
    """Whether it is a number near 0: a maximum with it changes no gradient that is clipped."""
    return form.op == "number" and is_tiny(form)


def flat(form: Form) -> Form | None:
    """A tensor, or the tensors of a list, in one vector."""
    if form.op == "list":
        inner = bare(form.parts[0].parts[0] if form.parts[0].op == "flat" else form.parts[0])
        return Form("flat", (Form("list", (inner, form.parts[1])),))
    return form if form.op == "flat" else Form("flat", (bare(form),)) if is_tensor(bare(form)) else None


def norm(form: Form) -> Form | None:
    """The norm of a tensor, of a vector of tensors, or of norms."""
    inner = bare(form.parts[0] if form.op == "flat" else form)
    if inner.op == "list":
        each, collection = inner.parts
        item = bare(each.parts[0] if each.op == "norm" and each.value == "one" else each)
        return Form("norm", (collection,), ("all", item.value)) if item.op == "item" and item.parts == (collection,) else None
    return Form("norm", (inner,), "one") if is_tensor(inner) else None


def summed(form: Form, *, builtin: bool = False) -> Form | None:
    """The sum of squares as the square of a norm; None for any other sum."""
    if form.op == "list":
        each = form.parts[0].parts[0] if _is_square(form.parts[0]) else None
        made = norm(Form("list", (each, form.parts[1]))) if each is not None and each.op == "norm" else None
        return product((made, 2)) if made is not None else None
    if builtin or not _is_square(form):
        return None
    base = bare(form.parts[0])
    made = norm(base) if is_tensor(base) or base.op == "flat" else None
    return product((made, 2)) if made is not None else None


def _is_square(form: Form) -> bool:
    return form.op == "product" and len(form.parts) == 1 and form.value == (2.0,)
