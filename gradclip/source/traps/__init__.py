"""The traps: mistakes in calls that look right. One file for one or two traps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.traps import (
    iterators,
    limits,
    nones,
    optax,
    paddle,
    params,
    results,
    shards,
    shared,
    steps,
    trainers,
    twice,
    unused,
)

__all__ = ["MISTAKES", "OF_THE_NATIVE", "OF_THE_STEP", "PLACES", "Check"]

Check = Callable[[ApiCall], Finding | None]

#: checks that also apply to a rewrite from a framework's legacy form to its current one
OF_THE_NATIVE: tuple[Check, ...] = (paddle.check, paddle.check_order)
#: the checks of a call, in the order in which they object to a rewrite
MISTAKES: tuple[Check, ...] = (
    *OF_THE_NATIVE,
    limits.check_bound,
    limits.check_off,
    results.check_ignored,
    results.check_copy,
    unused.check,
    iterators.check,
    optax.check,
    params.check,
    twice.check,
    nones.check,
    results.check_norm,
    shards.check,
    shared.check,
)
#: what is wrong around a call, between it and the rest of the step: a rewrite of the call keeps it as it is
OF_THE_STEP: tuple[Check, ...] = (twice.check, steps.check)
#: mistakes in other places than a call of the table: the finding at each place
PLACES: tuple[Callable[[Context], Iterator[tuple[cst.CSTNode, Finding]]], ...] = (trainers.ignored,)
