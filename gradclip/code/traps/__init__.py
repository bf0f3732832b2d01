"""The traps: errors in calls that look right, and rewrites that would change behaviour. One file for one or two traps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from gradclip.code.found import ApiCall, Context, Finding
from gradclip.code.traps import (
    amp,
    frequency,
    iterators,
    keras,
    limits,
    loops,
    nones,
    optax,
    order,
    paddle,
    params,
    replicas,
    results,
    shared,
    sparse,
    trainers,
    twice,
    unused,
    wrappers,
)

__all__ = ["MISTAKES", "OF_THE_NATIVE", "PLACES", "TRAPS", "loops"]

Check = Callable[[ApiCall], Finding | None]

#: every check, in the order in which they object to a rewrite; True: it finds a mistake, which the linter reports too
_CHECKS: tuple[tuple[Check, bool], ...] = (
    (paddle.check, True),
    (paddle.check_order, True),
    (keras.check, False),
    (limits.check_value, False),
    (limits.check_norm, False),
    (limits.check_bound, True),
    (results.check_ignored, True),
    (results.check_copy, True),
    (unused.check, True),
    (iterators.check, True),
    (amp.check, True),
    (order.check, True),
    (optax.check, True),
    (frequency.check, True),
    (params.check, True),
    (twice.check, True),
    (replicas.check, True),
    (nones.check, True),
    (wrappers.check, False),
    (results.check_norm, True),
    (sparse.check, False),
    (shared.check, False),
)
TRAPS: tuple[Check, ...] = tuple(check for check, _ in _CHECKS)
MISTAKES: tuple[Check, ...] = tuple(check for check, is_mistake in _CHECKS if is_mistake)
#: checks that also apply to a rewrite from a framework's legacy form to its current one
OF_THE_NATIVE: tuple[Check, ...] = (paddle.check, paddle.check_order)
#: mistakes in other places than a call of the table: the finding at each place
PLACES: tuple[Callable[[Context], Iterator[tuple[cst.CSTNode, Finding]]], ...] = (trainers.ignored, frequency.under_accumulate)
