"""The traps: errors in calls that look right, and rewrites that would change behaviour. One file for one or two traps."""

from __future__ import annotations

from collections.abc import Callable

from gradclip.migrate.codemod.found import ApiCall, Finding
from gradclip.migrate.codemod.traps import (
    amp,
    iterators,
    keras,
    limits,
    loops,
    optax,
    order,
    paddle,
    results,
    shared,
    sparse,
    wrappers,
)

__all__ = ["MISTAKES", "OF_THE_NATIVE", "TRAPS", "loops"]

Check = Callable[[ApiCall], Finding | None]

#: checks that also apply to a rewrite from a framework's legacy form to its current one
OF_THE_NATIVE: tuple[Check, ...] = (paddle.check,)
#: checks for mistakes, which apply to any outcome of the call
MISTAKES: tuple[Check, ...] = (
    limits.check_norm,
    results.check_ignored,
    results.check_copy,
    results.check_norm,
    iterators.check,
    amp.check,
    order.check,
    optax.check,
    paddle.check_order,
)
TRAPS: tuple[Check, ...] = (
    paddle.check,
    keras.check,
    limits.check_value,
    limits.check_norm,
    results.check_ignored,
    results.check_copy,
    iterators.check,
    amp.check,
    order.check,
    optax.check,
    wrappers.check,
    results.check_norm,
    sparse.check,
    shared.check,
)
