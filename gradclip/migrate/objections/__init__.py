"""Why a call is not rewritten, or only with a comment: the mistakes, and rewrites that would change behaviour."""

from __future__ import annotations

from gradclip.migrate.objections import keras, limits, shared, sparse, wrappers
from gradclip.source.traps import MISTAKES, OF_THE_NATIVE, Check, steps
from gradclip.source.traps.limits import check_norm

__all__ = ["OBJECTIONS"]

#: every check, in the order in which they object to a rewrite
OBJECTIONS: tuple[Check, ...] = tuple(
    dict.fromkeys(
        (
            *OF_THE_NATIVE,
            keras.check,
            limits.check,
            check_norm,
            *MISTAKES,
            steps.check,
            wrappers.check,
            sparse.check,
            shared.check,
        )
    )
)
