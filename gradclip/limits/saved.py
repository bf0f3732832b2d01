"""The state of a limit, its own, from a function of the user's or saved: a wrong one is refused before anything changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gradclip.core.backend import Backend
from gradclip.core.dtypes import is_real
from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.registry import find
from gradclip.limits.arithmetic import numbers
from gradclip.limits.stored import Stored, is_number

__all__ = ["check_count", "check_state", "initial", "loaded"]


def initial(limit: Any) -> dict[str, Any]:
    """The state before the first step.

    Raises:
        TypeError: if ``init()`` returns anything but a dict of numbers and lists of numbers.
    """
    state = limit.init()
    if not isinstance(state, Mapping):
        raise ArgumentTypeError("init must return the state, a dict of numbers and lists of numbers.", shown(state))
    check_state(state, "init")
    return dict(state)


def check_state(state: Mapping[Any, Any], function: str, before: Mapping[Any, Any] | None = None) -> None:
    """Refuse a state of anything but numbers and lists of numbers by name, or with lists of other lengths than ``before``."""
    for name, x in state.items():
        what = f"In the state that {function} returns each entry is a number, or a list of numbers of one length."
        then = None if before is None else before[name]
        is_other = isinstance(x, list) and isinstance(then, list) and len(x) != len(then)
        if not isinstance(name, str) or is_other or not (_is_tensor(x) or all(map(_is_scalar, x if _is_list(x) else [x]))):
            raise ArgumentTypeError(what, f"{shown(name)}: {shown(x)}")


def loaded(given: Any, wanted: Mapping[str, Any], limit: Any, is_each: bool) -> dict[str, Any]:
    """The state of a limit from its ``state_dict()``, with numbers and lists of them in the form of ``limit.init()``.

    Args:
        given: from the user.
        wanted: the entries that it must have beside the state.
        limit: the object with ``init``, ``limit`` and ``observe``.
        is_each: whether it follows each gradient: then its state may have a list for each number.

    Raises:
        ValueError: for anything else.
    """
    if not isinstance(given, Mapping) or any(not _equal(given.get(name), x) for name, x in wanted.items()):
        received = ", ".join(f"{x}={shown(given.get(x))}" for x in wanted) if isinstance(given, Mapping) else shown(given)
        raise ArgumentError("The state of a limit is of another version.", received, f"this one reads {dict(wanted)}.")
    stored, form = Stored(given, "limit", maker="adaptive.state_dict()"), numbers(initial(limit))
    stored.check_keys((*wanted, "state"))
    inner = stored["state"]
    if isinstance(inner.given, Mapping) and inner.given.keys() != form.keys():
        names = f"entries {', '.join(map(str, inner.given)) or 'none'}"
        raise ArgumentError("The state is of another limit.", names, f"this one has {', '.join(form)}.")
    inner.check_keys(form.keys())
    plain = {name: _entry(inner[name], value, is_each) for name, value in form.items()}
    _check_ranges(inner, limit, plain)
    lengths = {len(plain[name]) if isinstance(plain[name], list) else None for name in form if is_number(form[name])}
    if len(lengths) > 1:
        raise inner.wrong("each entry must be for the same number of gradients")
    _check_limit(inner, limit, plain, next(iter(lengths), None))
    return plain


def _equal(given: Any, wanted: Any) -> bool:
    """Whether two versions are equal; a checkpoint may restore one as an array."""
    plain = Stored(given, "limit").plain
    return type(plain) in (int, float, str) and bool(plain == wanted)


def _entry(stored: Stored, form: Any, is_each: bool) -> Any:
    """One entry, as a number or a list of numbers."""
    if _is_list(form):
        return [x.real() for x in stored.entries(len(form))]
    return [x.real() for x in stored.entries()] if is_each and _is_list(stored.plain) else stored.real()


def _is_scalar(x: Any) -> bool:
    """Whether this is a number that a tensor can hold, also of NumPy."""
    if is_number(x):
        return not isinstance(x, int) or abs(x) < 1 << 1023
    return _is_tensor(x) and not tuple(x.shape)


def _is_list(x: Any) -> bool:
    return isinstance(x, (list, tuple))


def _is_tensor(x: Any) -> bool:
    """Whether this is a tensor of real numbers with at most one axis."""
    backend = None if isinstance(x, (int, float, list, tuple)) else find(x)
    return backend is not None and is_real(backend.dtype(x)) and len(backend.shape(x) or ()) < 2


def _check_ranges(stored: Stored, limit: Any, state: Mapping[str, Any]) -> None:
    """Refuse numbers that a limit of gradclip's never has, such as a count of -1."""
    if not hasattr(limit, "range_of"):
        return
    for name, x in state.items():
        least, most = limit.range_of(name)
        for number in x if _is_list(x) else [x]:
            if not least <= number <= most or (name in limit.wholes and not float(number).is_integer()):
                kind = "a whole number" if name in limit.wholes else "a number"
                to = "on" if math.isinf(most) else f"to {most:g}"
                raise stored[name].wrong(f"this must be {kind} from {least:g} {to}")


def _check_limit(stored: Stored, limit: Any, state: dict[str, Any], count: int | None) -> None:
    """Refuse numbers from which no limit can be computed, such as a negative variance."""
    for i in range(1 if count is None else count):
        one = {name: x[i] if count is not None and isinstance(x, list) else x for name, x in state.items()}
        try:
            found = limit.limit(one)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            found = float("nan")
        if isinstance(found, float) and found != found:
            raise stored.wrong("these numbers give no limit")


def check_count(backend: Backend, state: Mapping[str, Any], count: int) -> None:
    """Refuse a state that follows another number of gradients."""
    for x in state.values():
        shape = backend.shape(x)
        if shape and shape[0] not in (None, count):
            what, hint = "This limit has followed another number of gradients.", "make another Adaptive for these."
            raise ArgumentError(what, f"a state for {shape[0]} gradients, and {count} gradients", hint)
