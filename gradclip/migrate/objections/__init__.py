"""Why a call is not rewritten, or only with a comment: the mistakes, and rewrites that would change behaviour."""

from __future__ import annotations

from gradclip.code.traps import MISTAKES, OF_THE_NATIVE, Check
from gradclip.code.traps.limits import check_norm
from gradclip.migrate.objections import keras, limits, shared, sparse, wrappers

__all__ = ["OBJECTIONS"]

#: every check, in the order in which they object to a rewrite
OBJECTIONS: tuple[Check, ...] = tuple(
    dict.fromkeys(
        (*OF_THE_NATIVE, keras.check, limits.check, check_norm, *MISTAKES, wrappers.check, sparse.check, shared.check)
    )
)
