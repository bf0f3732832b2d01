"""The traps: what calls that look right do wrong, and where a rewrite would change what they do. One file a trap or two."""

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

#: those that concern a rewrite from a framework's legacy form to its current one too
OF_THE_NATIVE: tuple[Check, ...] = (paddle.check,)
#: those of a mistake, whatever becomes of the call
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
