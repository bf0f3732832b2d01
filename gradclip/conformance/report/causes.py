"""Why a target fails on several ranks: what came compared with what should have come, then the flag that tells it best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradclip.conformance.ranks.fits import FITS, OWN_NORM
from gradclip.conformance.result import Result

__all__ = ["causes"]


def causes(results: Sequence[Result]) -> dict[str, str]:
    """For each failed vector of a target and operation one cause: a name of :data:`FITS`, or one of its flags.

    What fits every wrong outcome is the cause of all: a clip that scales nothing is not one by each rank's own norm. Else it
    is a flag. A vector for several ranks has many, most of them of features that work. The cause is the flag with the best
    balance (F1) of how many of its vectors fail, and how many of the failed ones have it. The vectors without it have the next
    one. An exception, a hang and a wrong number have separate causes.

    >>> def result(case, status, *flags, message="", reason=""):
    ...     return Result("mine", "torch.clip_grad_norm_", case, "vector", status, reason, message, flags=flags)
    >>> passed = [result("a", "pass", "AllShards"), result("b", "pass", "AllShards", "Replicas")]
    >>> causes([*passed, result("c", "fail", "AllShards", "Missing"), result("d", "fail", "Missing", "Replicas")])
    {'c': 'Missing', 'd': 'Missing'}
    >>> causes([*passed, result("c", "fail", "AllShards", message="rank 0: 3.0 for 0.5 (it scaled nothing)")])
    {'c': 'NothingScaled'}
    """
    passed = Counter(flag for result in results if result.status == "pass" for flag in result.flags)
    found: dict[str, str] = {}
    by_reason: dict[str, list[Result]] = {}
    for result in results:
        if result.status == "fail" and result.flags:
            by_reason.setdefault(result.reason, []).append(result)
    for reason, failed in by_reason.items():
        fits = [name for name, fit in FITS.items() if not reason and all(fit.phrase in result.message for result in failed)]
        if fits and fits[0] != OWN_NORM:
            found |= {result.case: fits[0] for result in failed}
        else:
            found |= _by_flags({result.case: _possible(result) for result in failed}, passed)
    return found


def _possible(result: Result) -> tuple[str, ...]:
    """The flags that can be the cause: that of a rank's own norm only where the outcome is that of a rank's own norm."""
    if result.reason or FITS[OWN_NORM].phrase in result.message:
        return result.flags
    return tuple(flag for flag in result.flags if flag != OWN_NORM) or result.flags


def _by_flags(left: dict[str, tuple[str, ...]], passed: Counter[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    while left:
        failed = Counter(flag for flags in left.values() for flag in flags)
        cause = max(sorted(failed), key=lambda flag: failed[flag] / (failed[flag] + passed[flag] + len(left)))
        found |= {case: cause for case, flags in left.items() if cause in flags}
        left = {case: flags for case, flags in left.items() if cause not in flags}
    return found
