"""The checks before a clip computes anything, the error for a norm that is not finite, and the warnings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from gradclip.core.backend import Backend, Tensor, number
from gradclip.core.dtypes import FLOATS, INTEGERS, WIDE, is_real
from gradclip.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    NonFiniteError,
    NotWritableError,
    ShapeError,
    TensorTypeError,
    shown,
)
from gradclip.core.gradients import ANONYMOUS, Gradients
from gradclip.core.norms import axes_of, check_dtypes
from gradclip.core.registry import as_float, find, widened
from gradclip.core.rule import AXES, EXAMPLE, GLOBAL, TENSOR, VALUE, Rule

__all__ = [
    "KnownNormError",
    "broken",
    "check",
    "check_known",
    "check_limits",
    "is_finite",
    "is_writable",
    "not_finite",
]


class KnownNormError(ShapeError, RuntimeError):
    """A known norm whose shape is not that of the rule's norm."""


def check_limits(rule: Rule) -> None:
    """Refuse a tensor as limit or bound if the rule would refuse the number, and if reading it is free."""
    for name, value in (("limit", rule.limit), ("lower", rule.lower), ("upper", rule.upper), ("skip_above", rule.skip_above)):
        extremes = None if value is None or isinstance(value, float) else _extremes(value)
        if extremes is not None and name == "limit":
            rule.check_limit(extremes[0])
        elif extremes is not None and name == "skip_above" and not extremes[0] >= 0:
            raise ArgumentError("skip_above must be a number from 0 on.", f"skip_above={extremes[0]}")
        elif extremes is not None and extremes[0] != extremes[0]:
            raise ArgumentError("A bound must be a number, not NaN.", f"{name}=nan")


def _extremes(x: Any) -> tuple[float, float] | None:
    """The smallest and the largest element, both NaN if one is NaN; None without elements, or if reading is not free."""
    if isinstance(x, (int, float)):
        return float(x), float(x)
    backend = find(x)
    if backend is None or 0 in (backend.shape(x) or ()) or not backend.reads_free([x]):
        return None
    with backend.arithmetic(False):
        real = backend.cast(x, WIDE.get(backend.dtype(x), "float32"))
        return -number(backend, backend.max(-real, None)), number(backend, backend.max(real, None))


def check_known(grads: Gradients, backend: Backend, rule: Rule, known: Any) -> Any:
    """A known norm in the form and of a dtype of the rule's own norm, or an error."""
    leaves = grads.leaves
    if rule.scope is VALUE:
        if known is None:
            return None  # gradclip.norm returns None too
        raise ArgumentTypeError(f"{rule.name} has no norm.", f"norm={shown(known)}", "use gradclip.clip.")
    if rule.scope in (GLOBAL, EXAMPLE):
        return _known(backend, rule, grads.present[0] if grads.present else None, known)
    norms = _by_place(grads, backend, known)
    if len(norms) != len(leaves):
        what, hint = f"{rule.name} has one norm for each gradient.", "pass what gradclip.norm returned, or a list."
        if norms and norms[0] is known:
            raise ArgumentTypeError(what, f"norm of type {type(known).__name__}", hint)
        raise ArgumentError(what, f"{len(norms)} norms and {len(leaves)} gradients", hint)
    return [None if x is None else _known(backend, rule, x, n) for x, n in zip(leaves, norms, strict=True)]


def _by_place(grads: Gradients, backend: Backend, known: Any) -> list[Any]:
    """The known norms in the order of the gradients. A list is matched by position, a container with names by name."""
    norms = backend.containers.flatten(known)[0]
    if isinstance(known, (list, tuple)) and len(norms) == len(known):
        return norms
    by_place, places = dict(backend.containers.walk(known)), grads.places()
    if by_place.keys() == set(places):
        return [by_place[place] for place in places]
    if len(norms) == len(places) and not isinstance(known, (list, tuple)):
        odd = sorted(by_place.keys() - set(places))
        raise ArgumentError("A norm belongs to no gradient.", f"norm{odd[0]}", f"the gradients are {', '.join(places[:3])}.")
    return norms


def _known(backend: Backend, rule: Rule, x: Tensor | None, norm: Any) -> Any:
    """One known norm, for this gradient if each has its own; None where only other processes have gradients."""
    theirs = find(norm)
    if theirs is None and not isinstance(norm, (int, float)):
        hint = "pass what gradclip.norm or gradclip.get_total_norm returned."
        raise ArgumentTypeError("A norm must be a number or a tensor.", f"norm={shown(norm)}", hint)
    if theirs is not None and not is_real(theirs.dtype(norm)):
        raise backend.error(DTypeError("A norm must be of a real dtype.", f"norm of dtype {theirs.dtype(norm)}"))
    norm = norm if theirs is None else widened(theirs.distributed.together(norm))
    _check_known_shape(backend, rule, x, norm, () if theirs is None else theirs.shape(norm))
    extremes = _extremes(norm)
    if extremes is not None and extremes[0] < 0:
        raise backend.error(ArgumentError("A norm must not be negative.", f"norm={extremes[0]}"))
    if rule.scope in (GLOBAL, TENSOR):
        norm = as_float(norm)
    elif rule.scope is AXES and x is not None and theirs is backend and theirs.dtype(norm) in FLOATS:
        norm = backend.asarray(norm, theirs.dtype(norm), x)  # sharded as the gradient is
    if not isinstance(norm, (int, float)) and not backend.is_tensor(norm):
        what = "A norm must be a tensor of the gradients' framework."
        raise TensorTypeError(what, f"tensors of {backend.name} and a norm of type {type(norm).__name__}", "convert it.")
    return norm


def _check_known_shape(backend: Backend, rule: Rule, x: Tensor | None, norm: Any, shape: tuple[int | None, ...] | None) -> None:
    if rule.scope is AXES:
        if x is not None and not backend.is_sparse(x):  # its norms are the norms of its merged rows
            _check_fits(backend, x, norm, "norm")
    elif rule.scope is EXAMPLE:
        examples = None if x is None else (backend.shape(x) or (None,))[0]
        if shape is not None and (len(shape) != 1 or (shape[0] != examples and None not in (shape[0], examples))):
            what = f"{rule.name} has one norm for each example."
            raise backend.error(KnownNormError(what, f"norm of shape {shape}, {examples} examples"))
    elif shape:
        what = f"{rule.name} takes a norm that is one number."
        raise backend.error(KnownNormError(what, f"norm of shape {shape}", "pass a 0-d tensor."))


def check(grads: Gradients, backend: Backend, rule: Rule, *, in_place: bool = False) -> None:
    """Refuse what cannot be clipped, before anything is computed."""
    present = grads.present
    limits = [limit for limit in (rule.limit, rule.lower, rule.upper) if not isinstance(limit, float)]
    if rule.scope is VALUE:
        _check_bounds(backend, present, rule)
    else:
        _check_dtypes(grads, backend, rule)
    if rule.scope is EXAMPLE:
        _check_examples(backend, present, rule)
    for limit in limits:
        for x in present:
            _check_fits(backend, x, limit, stored=rule.stored_only)
    if rule.scope is AXES:
        for x in present:
            _check_axes(grads, backend, x, rule)
    if in_place:
        for x in present:
            backend.check_writable(x)


def _check_dtypes(grads: Gradients, backend: Backend, rule: Rule) -> None:
    sums = rule.scope is EXAMPLE  # a sum of scaled integers is a new gradient, of a floating dtype
    taken = {*WIDE, *INTEGERS} if sums else WIDE.keys()
    if not grads.dtypes <= taken:
        wrong = next(x for x in grads.present if backend.dtype(x) not in taken)
        check_dtypes(backend, [wrong], _called(grads, wrong))


def _check_axes(grads: Gradients, backend: Backend, x: Tensor, rule: Rule) -> None:
    if len(backend.shape(x) or ()) != len(backend.shape(backend.rows(x)[0]) or ()):
        what = "A gradient with more than one sparse dimension has no slices to take a norm over."
        raise backend.error(ShapeError(what, f"shape {backend.shape(x)}", "take one norm over the gradient, or make it dense."))
    try:
        axes = axes_of(backend, x, rule)
    except ShapeError:
        axes = axes_of(backend, x, rule, _called(grads, x))  # raises again, now with the name
    if 0 not in (axes or (0,)) and rule.relative_to is not None and backend.is_sparse(x):
        what, hint = "A sparse gradient has no norm for each row of its parameter.", "leave the first axis in axis=."
        raise backend.error(ArgumentError(what, f"axis={rule.axes}", hint))


def _called(grads: Gradients, x: Tensor) -> str:
    """The gradient's name for a message, if it has one."""
    name = grads.paths()[next(i for i, leaf in enumerate(grads.leaves) if leaf is x)]
    return "" if name == ANONYMOUS else f", gradient {name}"


def is_writable(backend: Backend, x: Tensor) -> bool:
    """Whether a gradient can be written in place."""
    try:
        backend.check_writable(x)
    except NotWritableError:
        return False
    return True


def _check_fits(backend: Backend, x: Tensor, limit: Any, kind: str = "limit", stored: bool = False) -> None:
    """A limit may broadcast to a gradient, but not a gradient to a limit, and a limit to sparse rows only as ``stored``."""
    if isinstance(limit, float):
        return
    shape, limits = backend.shape(x), getattr(limit, "shape", None)
    if shape is None or limits is None:
        return
    if backend.is_sparse(x) and len(limits) > 0:
        rows = backend.stored(x) if stored else None
        values = backend.shape((rows or backend.rows(x))[0]) or ()
        # with several sparse dimensions the stored values have no axes that a limit could broadcast along
        shape = () if len(values) != len(shape) else values if rows is not None else (1, *shape[1:])
    pairs = zip(reversed(tuple(limits)), reversed(shape), strict=False)
    if len(limits) > len(shape) or any(n not in (1, length) and None not in (n, length) for n, length in pairs):
        raise backend.error(ShapeError(f"The {kind} does not fit the gradient.", f"shapes {tuple(limits)} and {shape}"))


def _check_examples(backend: Backend, tensors: list[Tensor], rule: Rule) -> None:
    if any(backend.is_sparse(x) for x in tensors):
        raise backend.error(ArgumentError("A sparse gradient has no examples along its first axis.", f"rule={rule}"))
    shapes = [backend.shape(x) for x in tensors]
    lengths = [shape[0] for shape in shapes if shape is not None and len(shape) > 0 and shape[0] is not None]
    # one after the other: a symbol has no hash
    if any(shape is None or len(shape) == 0 for shape in shapes) or any(n != lengths[0] for n in lengths):
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
        if not rule.stored_only and backend.is_sparse(x) and _exclude_zero(rule):
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
    if any(not isinstance(n, float) and not backend.can_read(n) for n in found):
        hint = "test the returned norm outside of the traced function."
        what = "error_if_nonfinite must read the norm, which is impossible while tracing."
        raise ArgumentError(what, "error_if_nonfinite=True", hint)
    some = [n for n in found if isinstance(n, float) or 0 not in (backend.shape(n) or ())]  # a table may store no rows
    values = [n if isinstance(n, float) else number(backend, backend.max(backend.abs(n), None)) for n in some]
    return all(value - value == 0 for value in values)


def broken(grads: Gradients, places: Collection[int]) -> Iterator[tuple[int, float, int]]:
    """The places of the gradients that are not finite, with the counts of such elements and of all; it reads values."""
    backend = grads.backend
    assert backend is not None
    for i in sorted(set(places).intersection(grads.unique())):
        values, _ = backend.rows(grads.leaves[i])
        wide = backend.abs(backend.cast(values, WIDE.get(backend.dtype(values), "float32")))
        size = backend.size(wide)
        bad = size - number(backend, backend.sum(backend.cast(wide - wide >= 0, backend.dtype(wide)), None))
        if bad:
            yield i, bad, size


def not_finite(
    grads: Gradients,
    rule: Rule,
    places: Collection[int] | None = None,
    everywhere: Callable[[list[str]], list[str]] | None = None,
) -> Exception:
    """The :class:`NonFiniteError` with the names of the culprits at ``places``, or of all culprits.

    ``everywhere`` maps this process's culprits to those of all processes.
    """
    backend = grads.backend
    assert backend is not None
    paths, whose = grads.paths(), backend.distributed.whose
    found = broken(grads, range(len(grads.leaves)) if places is None else places)
    culprits = [f"{whose(grads.leaves[i])}{paths[i]}: {bad:.0f} of {size} elements" for i, bad, size in found]
    if everywhere is not None:
        culprits = everywhere(culprits)
    return backend.error(
        NonFiniteError(
            f"The total norm of order {rule.order} for gradients is non-finite, so it cannot be clipped.",
            "; ".join(culprits) or "finite gradients whose norm overflows their dtype",
            "set error_if_nonfinite=False to scale by the non-finite norm all the same.",
        )
    )
