"""Which subject fails: the flag that tells a target's failed vectors from its passed ones best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradclip.conformance.result import Result

__all__ = ["causes"]


def causes(results: Sequence[Result]) -> dict[str, str]:
    """For each failed vector of a target and operation one of its flags.

    A vector for several ranks has many flags, most of them of features that work. A cause is the flag with the best balance
    (F1) of how many of its vectors fail, and how many of the failed ones have it. The vectors without it have the next one.

    >>> def result(case, status, *flags):
    ...     return Result("mine", "torch.clip_grad_norm_", case, "vector", status, flags=flags)
    >>> passed = [result("a", "pass", "AllShards"), result("b", "pass", "AllShards", "Replicas")]
    >>> causes([*passed, result("c", "fail", "AllShards", "Missing"), result("d", "fail", "Missing", "Replicas")])
    {'c': 'Missing', 'd': 'Missing'}
    """
    passed = Counter(flag for result in results if result.status == "pass" for flag in result.flags)
    left = {result.case: result.flags for result in results if result.status == "fail" and result.flags}
    found: dict[str, str] = {}
    while left:
        failed = Counter(flag for flags in left.values() for flag in flags)
        cause = max(sorted(failed), key=lambda flag: failed[flag] / (failed[flag] + passed[flag] + len(left)))
        found |= {case: cause for case, flags in left.items() if cause in flags}
        left = {case: flags for case, flags in left.items() if cause not in flags}
    return found
