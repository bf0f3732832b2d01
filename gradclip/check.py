"""The checks before a clip computes anything, the error for a norm that is not finite, and the warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from typing import Any

from gradclip.backend import Backend, Tensor, number
from gradclip.dtypes import FLOATS, INTEGERS, WIDE
from gradclip.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    GradclipWarning,
    NonFiniteError,
    NotWritableError,
    ShapeError,
    TensorTypeError,
    message,
    shown,
)
from gradclip.gradients import ANONYMOUS, Gradients
from gradclip.norms import axes_of, check_dtypes
from gradclip.registry import find, looked_at
from gradclip.rule import Rule, Scope

__all__ = [
    "KnownNormError",
    "broken",
    "check",
    "check_known",
    "check_limits",
    "is_finite",
    "is_writable",
    "not_finite",
    "warn_of_doubt",
    "warn_of_no_match",
    "warn_of_nothing",
]


Paths = Callable[[], list[str]]  #: returns the name of each gradient


class KnownNormError(ShapeError, RuntimeError):
    """A known norm whose shape is not that of the rule's norm."""


def check_limits(rule: Rule) -> None:
    """Refuse a tensor as limit or bound if the rule would refuse the number, and if reading it is free."""
    for name, value in (("limit", rule.limit), ("lower", rule.lower), ("upper", rule.upper)):
        extremes = None if isinstance(value, float) else _extremes(value)
        if extremes is not None and name == "limit":
            rule.check_limit(extremes[0])
        elif extremes is not None and extremes[0] != extremes[0]:
            raise ArgumentError("A bound must be a number, not NaN.", f"{name}=nan")


def _extremes(x: Any) -> tuple[float, float] | None:
    """The smallest and the largest element, both NaN if one is NaN; None without elements, or if reading is not free."""
    if isinstance(x, (int, float)):
        return float(x), float(x)
    owner = find(x)
    if owner is None or 0 in (owner.shape(x) or ()) or not owner.is_concrete([x]):
        return None
    with owner.arithmetic(False):
        real = owner.cast(x, WIDE.get(owner.dtype(x), "float32"))
        return -number(owner, owner.max(-real, None)), number(owner, owner.max(real, None))


def check_known(opened: Gradients, backend: Backend, rule: Rule, known: Any) -> Any:
    """A known norm in the form of the rule's own norm, or an error."""
    leaves = opened.leaves
    if rule.scope is Scope.VALUE:
        if known is None:
            return None  # gradclip.norm returns None too
        raise ArgumentTypeError(f"{rule.name} has no norm.", f"norm={shown(known)}", "use gradclip.clip.")
    if rule.scope in (Scope.GLOBAL, Scope.EXAMPLE):
        return _known(backend, rule, opened.present[0] if opened.present else None, known)
    norms = _by_place(opened, backend, known)
    if len(norms) != len(leaves):
        what, hint = f"{rule.name} has one norm for each gradient.", "pass what gradclip.norm returned, or a list."
        if norms and norms[0] is known:
            raise ArgumentTypeError(what, f"norm of type {type(known).__name__}", hint)
        raise ArgumentError(what, f"{len(norms)} norms and {len(leaves)} gradients", hint)
    return [None if x is None else _known(backend, rule, x, n) for x, n in zip(leaves, norms, strict=True)]


def _by_place(opened: Gradients, backend: Backend, known: Any) -> list[Any]:
    """The known norms in the order of the gradients. A list is matched by position, a container with names by name."""
    norms = backend.containers.flatten(known)[0]
    if isinstance(known, (list, tuple)) and len(norms) == len(known):
        return norms
    by_place, places = dict(backend.containers.walk(known)), opened.places()
    if by_place.keys() == set(places):
        return [by_place[place] for place in places]
    if len(norms) == len(places) and not isinstance(known, (list, tuple)):
        odd = sorted(by_place.keys() - set(places))
        raise ArgumentError("A norm belongs to no gradient.", f"norm{odd[0]}", f"the gradients are {', '.join(places[:3])}.")
    return norms


def _known(backend: Backend, rule: Rule, x: Tensor | None, norm: Any) -> Any:
    """One known norm, for this gradient if each has its own; None where only other processes have gradients."""
    owner = find(norm)
    if owner is None and not isinstance(norm, (int, float)):
        hint = "pass what gradclip.norm or gradclip.get_total_norm returned."
        raise ArgumentTypeError("A norm must be a number or a tensor.", f"norm={shown(norm)}", hint)
    if owner is not None and owner.dtype(norm) not in FLOATS + tuple(INTEGERS):
        raise backend.error(DTypeError("A norm must be of a real dtype.", f"norm of dtype {owner.dtype(norm)}"))
    norm = norm if owner is None else owner.distributed.together(norm)
    _check_known_shape(backend, rule, x, norm, () if owner is None else owner.shape(norm))
    extremes = _extremes(norm)
    if extremes is not None and extremes[0] < 0:
        raise backend.error(ArgumentError("A norm must not be negative.", f"norm={extremes[0]}"))
    if rule.scope in (Scope.GLOBAL, Scope.TENSOR):
        norm = looked_at(norm)
    if not isinstance(norm, (int, float)) and not backend.is_tensor(norm):
        what = "A norm must be a tensor of the gradients' framework."
        raise TensorTypeError(what, f"tensors of {backend.name} and a norm of type {type(norm).__name__}", "convert it.")
    return norm


def _check_known_shape(backend: Backend, rule: Rule, x: Tensor | None, norm: Any, shape: tuple[int | None, ...] | None) -> None:
    if rule.scope is Scope.AXES:
        if x is not None and not backend.is_sparse(x):  # its norms are the norms of its merged rows
            _check_fits(backend, x, norm, "norm")
    elif rule.scope is Scope.EXAMPLE:
        examples = None if x is None else (backend.shape(x) or (None,))[0]
        if shape is not None and (len(shape) != 1 or (shape[0] != examples and None not in (shape[0], examples))):
            what = f"{rule.name} has one norm for each example."
            raise backend.error(KnownNormError(what, f"norm of shape {shape}, {examples} examples"))
    elif shape:
        what = f"{rule.name} takes a norm that is one number."
        raise backend.error(KnownNormError(what, f"norm of shape {shape}", "pass a 0-d tensor."))


def check(opened: Gradients, backend: Backend, rule: Rule, *, in_place: bool = False, paths: Paths | None = None) -> None:
    """Refuse what cannot be clipped, before anything is computed; ``paths`` gives the names if ``opened`` does not."""
    present = opened.present
    limits = [limit for limit in (rule.limit, rule.lower, rule.upper) if not isinstance(limit, float)]
    backend.check(present)
    if rule.scope is Scope.VALUE:
        _check_bounds(backend, present, rule)
    else:
        _check_dtypes(opened, backend, paths)
    if rule.scope is Scope.EXAMPLE:
        _check_examples(backend, present, rule)
    for limit in limits:
        for x in present:
            _check_fits(backend, x, limit)
    if rule.scope is Scope.AXES:
        for x in present:
            _check_axes(opened, backend, x, rule, paths)
    if in_place:
        for x in present:
            backend.check_writable(x)


def _check_dtypes(opened: Gradients, backend: Backend, paths: Paths | None) -> None:
    try:
        check_dtypes(backend, opened.present)
    except DTypeError:
        wrong = next(x for x in opened.present if backend.dtype(x) not in WIDE)
        check_dtypes(backend, [wrong], _called(opened, wrong, paths))


def _check_axes(opened: Gradients, backend: Backend, x: Tensor, rule: Rule, paths: Paths | None) -> None:
    if len(backend.shape(x) or ()) != len(backend.shape(backend.rows(x)[0]) or ()):
        what = "A gradient with more than one sparse dimension has no slices to take a norm over."
        raise backend.error(ShapeError(what, f"shape {backend.shape(x)}", "take one norm over the gradient, or make it dense."))
    try:
        axes = axes_of(backend, x, rule)
    except ShapeError:
        axes = axes_of(backend, x, rule, _called(opened, x, paths))  # raises again, now with the name
    if 0 not in (axes or (0,)) and rule.relative_to is not None and backend.is_sparse(x):
        what, hint = "A sparse gradient has no norm for each row of its parameter.", "leave the first axis in axis=."
        raise backend.error(ArgumentError(what, f"axis={rule.axes}", hint))


def _called(opened: Gradients, x: Tensor, paths: Paths | None) -> str:
    """The gradient's name for a message, if it has one."""
    name = (paths or opened.paths)()[next(i for i, leaf in enumerate(opened.leaves) if leaf is x)]
    return "" if name == ANONYMOUS else f", gradient {name}"


def is_writable(backend: Backend, x: Tensor) -> bool:
    """Whether a gradient can be written in place."""
    try:
        backend.check_writable(x)
    except NotWritableError:
        return False
    return True


def _check_fits(backend: Backend, x: Tensor, limit: Any, kind: str = "limit") -> None:
    """A limit may broadcast to a gradient, but not a gradient to a limit, and not a limit to sparse rows."""
    if isinstance(limit, float):
        return
    shape, limits = backend.shape(x), getattr(limit, "shape", None)
    if shape is None or limits is None:
        return
    if backend.is_sparse(x):
        shape = (1, *shape[1:])
    pairs = zip(reversed(tuple(limits)), reversed(shape), strict=False)
    if len(limits) > len(shape) or any(n not in (1, length) and None not in (n, length) for n, length in pairs):
        raise backend.error(ShapeError(f"The {kind} does not fit the gradient.", f"shapes {tuple(limits)} and {shape}"))


def _check_examples(backend: Backend, tensors: list[Tensor], rule: Rule) -> None:
    if any(backend.is_sparse(x) for x in tensors):
        raise backend.error(ArgumentError("A sparse gradient has no examples along its first axis.", f"rule={rule}"))
    shapes = [backend.shape(x) for x in tensors]
    if any(not shape for shape in shapes) or len({shape[0] for shape in shapes if shape} - {None}) > 1:
        what = "Every gradient must have the examples along its first axis."
        raise backend.error(ShapeError(what, f"shapes {shapes}", "clip per example before averaging over them."))


def _check_bounds(backend: Backend, tensors: list[Tensor], rule: Rule) -> None:
    whole = _is_whole(rule.lower) and _is_whole(rule.upper)
    for x in tensors:
        dtype = backend.dtype(x)
        if dtype in ("complex64", "complex128"):
            raise backend.error(DTypeError("Complex numbers have no order: clip them by norm.", f"dtype={dtype}"))
        if dtype not in WIDE and not (whole and dtype in INTEGERS):
            what = "A gradient must be of a floating point dtype, or the bounds must be whole numbers of its own dtype."
            raise backend.error(DTypeError(what, f"dtype={dtype}, lower={rule.lower}, upper={rule.upper}"))
        if backend.is_sparse(x) and _exclude_zero(rule):
            what = "Bounds that exclude 0 would make a sparse gradient dense."
            raise backend.error(ArgumentError(what, f"lower={rule.lower}, upper={rule.upper}"))


def _exclude_zero(rule: Rule) -> bool:
    """Whether the bounds exclude 0 somewhere, as far as reading them is free."""
    lower, upper = _extremes(rule.lower), _extremes(rule.upper)
    return (lower is not None and lower[1] > 0) or (upper is not None and upper[0] < 0)


def _is_whole(bound: Any) -> bool:
    """Whether a bound is a whole number, or a tensor of integers."""
    if isinstance(bound, float):
        return bound.is_integer()
    backend = find(bound)
    return backend is not None and backend.dtype(bound) in INTEGERS


def is_finite(backend: Backend, measured: Any) -> bool:
    """Whether a norm, or each of several, is finite."""
    found = [n for n in (measured if isinstance(measured, list) else [measured]) if n is not None]
    if any(not isinstance(n, float) and not backend.can_look(n) for n in found):
        hint = "test the returned norm outside of the traced function."
        what = "error_if_nonfinite must read the norm, which is impossible while tracing."
        raise ArgumentError(what, "error_if_nonfinite=True", hint)
    values = [n if isinstance(n, float) else number(backend, backend.max(backend.abs(n), None)) for n in found]
    return all(value - value == 0 for value in values)


def broken(opened: Gradients, places: Collection[int]) -> Iterator[tuple[int, float, int]]:
    """The places of the gradients that are not finite, with the counts of such elements and of all; it reads values."""
    backend = opened.backend
    assert backend is not None
    for i in sorted(set(places).intersection(opened.unique())):
        values, _ = backend.rows(opened.leaves[i])
        wide = backend.abs(backend.cast(values, WIDE[backend.dtype(values)]))
        size = backend.size(wide)
        bad = size - number(backend, backend.sum(backend.cast(wide - wide >= 0, backend.dtype(wide)), None))
        if bad:
            yield i, bad, size


def not_finite(
    opened: Gradients,
    rule: Rule,
    places: Collection[int] | None = None,
    everywhere: Callable[[list[str]], list[str]] | None = None,
) -> Exception:
    """The :class:`NonFiniteError` with the names of the culprits at ``places``, or of all culprits.

    ``everywhere`` maps this process's culprits to those of all processes.
    """
    backend = opened.backend
    assert backend is not None
    paths, whose = opened.paths(), backend.distributed.whose
    found = broken(opened, range(len(opened.leaves)) if places is None else places)
    culprits = [f"{whose(opened.leaves[i])}{paths[i]}: {bad:.0f} of {size} elements" for i, bad, size in found]
    if everywhere is not None:
        culprits = everywhere(culprits)
    return backend.error(
        NonFiniteError(
            f"The total norm of order {rule.order} for gradients is non-finite, so it cannot be clipped.",
            "; ".join(culprits) or "finite gradients whose norm overflows their dtype",
            "set error_if_nonfinite=False to scale by the non-finite norm all the same.",
        )
    )


def warn_of_doubt(opened: Gradients) -> None:
    """Warn that these are probably not yet the gradients to clip."""
    doubt = None if opened.backend is None else opened.backend.distributed.doubt(opened.present)
    if doubt is not None:
        warnings.warn(doubt, GradclipWarning, stacklevel=_outside())


def warn_of_no_match(error: Exception) -> None:
    """Warn that a pattern matches nothing here; another process may have the match."""
    warnings.warn(str(error), GradclipWarning, stacklevel=_outside())


def warn_of_nothing(opened: Gradients) -> None:
    """Warn that nothing was clipped, which the caller probably does not expect."""
    if any(owner is not None for owner in opened.owners):
        what = "None of the parameters has a gradient: nothing was clipped."
        hint = "clip after backward(), and before zero_grad()."
        received = f"{len(opened.owners)} parameters"
        if opened.backend is not None and not any(map(opened.backend.containers.is_owner, opened.owners)):
            what = "None of these tensors has a gradient: nothing was clipped."
            received = f"{len(opened.owners)} tensors that require no gradient"
            hint = "gradients themselves go to gradclip.clip_(grads, rule); this function takes parameters."
    elif opened.was_iterator:
        # PyTorch's own sentence first: its users and tests search for it
        what = (
            "`parameters` is an empty generator, no gradient clipping will occur. The iterator is empty: nothing was clipped."
        )
        hint = "an iterator can be used once; pass a list to use it again."
        received = "an empty or exhausted iterator"
    elif opened.tree is None:
        what, received = "There is no gradient: nothing was clipped.", "grads=None"
        hint = "a parameter's gradient is None before backward(), and after zero_grad()."
    else:
        return
    warnings.warn(message(what, received, hint), GradclipWarning, stacklevel=_outside())


def _outside() -> int:
    """The stack level of the first frame that is not gradclip's own."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gradclip":
        level, frame = level + 1, frame.f_back
    return level
