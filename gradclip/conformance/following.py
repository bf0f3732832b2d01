"""The contract of a limit that follows a run: eight properties of ``init``, ``limit`` and ``observe``."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterable
from typing import Any

from gradclip.conformance.specification import Specification
from gradclip.core.errors import ArgumentError, shown

__all__ = ["PROPERTIES", "check_limit", "load_limit"]

PROPERTIES = {
    "a": "the limit comes from the past only, never from the norm that it limits",
    "b": "a norm that is not finite is never observed, and is counted",
    "c": "an outlier cannot raise its own limit without bound",
    "d": "zero gradients do not freeze a parameter",
    "e": "the state is JSON of a fixed size, has a version, and survives a checkpoint to the bit",
    "f": "all processes that see the same norms have the same limit",
    "g": "a fixed limit holds during the warm-up",
    "h": "it does not refuse norms for ever",
}
_METHODS = ("init", "limit", "observe")
_MOST_SHOWN = 300  # characters of an error of the user's code
_LONG = 1500  # steps: longer than any known warm-up


def check_limit(limit: Any) -> dict[str, str]:
    """Check a limit against the contract.

    Args:
        limit: of :mod:`gradclip.limits`, or a third party's.

    Returns:
        For each of :data:`PROPERTIES` the violation; "" if there is none.

    Example:
        >>> from gradclip import limits
        >>> from gradclip.conformance.following import check_limit
        >>> [name for name, wrong in check_limit(limits.zclip()).items() if wrong]
        []
    """
    checks = (_past, _not_finite, _outlier, _zeros, _state, _agree, _warm_up, _refusals)
    return {name: _wrong(check, limit) for name, check in zip(PROPERTIES, checks, strict=True)}


def _wrong(check: Callable[[Any], str], limit: Any) -> str:
    try:
        return check(limit)
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]


def _norms(count: int, scale: float = 1.0) -> list[float]:
    draw = random.Random(0)
    return [scale * draw.lognormvariate(0.0, 0.3) for _ in range(count)]


def _after(limit: Any, norms: Iterable[float], state: Any = None) -> Any:
    state = limit.init() if state is None else state
    for norm in norms:
        state = limit.observe(state, norm)
    return state


def _most(limit: Any, state: Any) -> float:
    return float(limit.limit(state))


def _past(limit: Any) -> str:
    state = _after(limit, _norms(_LONG))
    before, most = copy.deepcopy(state), _most(limit, state)
    limit.observe(state, 1e6)
    if state != before:
        return "observe changes the state that it is given"
    target = getattr(limit, "target", None)
    for norm in (1.01 * most, 10 * most, 1e6 * most):
        if target is not None and float(target(state, norm)) > most * (1 + 1e-9):
            return f"a norm of {norm:g} has a target above the limit {most:g}"
    return "" if _most(limit, state) == most else "the limit of one state differs from call to call"


def _not_finite(limit: Any) -> str:
    for bad in (math.nan, math.inf, -math.inf):
        state = _after(limit, _norms(_LONG))
        seen = limit.observe(state, bad)
        if not math.isclose(_most(limit, seen), _most(limit, state), rel_tol=1e-2):  # a schedule goes on
            return f"a norm of {bad} makes the limit {_most(limit, seen):g}, which was {_most(limit, state):g}"
        if seen == state:
            return f"a norm of {bad} is not counted"
        if not all(math.isfinite(x) for x in _numbers(seen)):
            return f"a norm of {bad} is kept in the state"
    return ""


def _outlier(limit: Any) -> str:
    state = _after(limit, _norms(_LONG))
    most = _most(limit, state)
    near, far = (_most(limit, limit.observe(state, size * most)) for size in (1e3, 1e9))
    if far > near * 1.1 or near > most * 2:
        return f"one norm of 1e9 times the limit makes it {far:.3g} instead of {most:.3g}, and one of 1e3 times {near:.3g}"
    return ""


def _zeros(limit: Any) -> str:
    norms = _norms(_LONG)
    usual = _most(limit, _after(limit, norms))
    for name, mixed in (("at the beginning", [0.0] * 50 + norms), ("later", [*norms, *[0.0] * 300, *norms[:50]])):
        found = _most(limit, _after(limit, mixed))
        if not found > usual / 3:
            return f"zeros {name} leave a limit of {found:.3g}, which is {usual:.3g} without them"
    return ""


def _state(limit: Any) -> str:
    if getattr(limit, "version", None) is None:
        return "it has no version"
    short, long = _after(limit, _norms(20)), _after(limit, _norms(_LONG))
    if len(list(_numbers(short))) != len(list(_numbers(long))):
        return f"{len(list(_numbers(short)))} numbers after 20 steps, {len(list(_numbers(long)))} after {_LONG}"
    loaded = json.loads(json.dumps(long))
    one, other = (_after(limit, _norms(50, 2.0), state) for state in (long, loaded))
    return "" if _most(limit, one) == _most(limit, other) else "the limit differs after a checkpoint"


def _agree(limit: Any) -> str:
    norms = [*_norms(300), math.nan, 1e6, *_norms(50)]
    one, other = _after(limit, norms), _after(copy.deepcopy(limit), norms)
    return "" if repr((one, _most(limit, one))) == repr((other, _most(limit, other))) else "two processes have different limits"


def _warm_up(limit: Any) -> str:
    first = _most(limit, limit.init())
    if not first > 0:
        return f"the first limit is {first:g}"
    for norm in (1e-6, 1e6):
        second = _most(limit, limit.observe(limit.init(), norm))
        if second != first and _follows(limit):
            return f"after one norm of {norm:g} the limit is {second:.3g}, and was {first:.3g}"
    return ""


def _follows(limit: Any) -> bool:
    """Whether the limit depends on the norms at all."""
    low, high = (_most(limit, _after(limit, _norms(_LONG, scale))) for scale in (1.0, 100.0))
    return low != high


def _refusals(limit: Any) -> str:
    if not _follows(limit):
        return ""
    state = _after(limit, [math.nan] * _LONG, _after(limit, _norms(_LONG)))
    usual = _most(limit, _after(limit, _norms(_LONG)))
    if not _most(limit, _after(limit, _norms(_LONG), state)) > usual / 3:
        return "it does not recover after many norms that were not finite"
    state, highest = _after(limit, _norms(_LONG)), 0.0
    for norm in _norms(3 * _LONG, 1e4):
        state = limit.observe(state, norm)
        highest = max(highest, _most(limit, state))
    return "" if highest > 100 * usual else f"after {3 * _LONG} norms of 1e4 the limit is still {highest:.3g}"


def _numbers(tree: Any) -> Iterable[float]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        for child in tree:
            yield from _numbers(child)
    elif isinstance(tree, (int, float)):
        yield float(tree)


def load_limit(text: str) -> Any:
    """The limit ``"module:name"`` or ``"file.py:name"``; it calls a function or a class.

    Raises:
        ValueError: if there is none, or if it lacks a method.
    """
    where, _, name = text.rpartition(":")
    try:
        found = Specification(text, "object", where, name).read()
        made = found if hasattr(found, "observe") and not isinstance(found, type) else found()
    except ArgumentError:  # no such file or name
        raise
    except Exception as error:  # the user's code may raise anything
        hint = "module:name or file.py:name, for a limit or a function that makes one."
        received = f"{shown(text)}: {type(error).__name__}: {str(error)[:_MOST_SHOWN]}"
        raise ArgumentError("There is no such limit.", received, hint) from None
    lacking = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if lacking:
        raise ArgumentError(f"{text} is not a limit: it has no method {' and no '.join(lacking)}.", "")
    return made
