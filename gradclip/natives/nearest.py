"""The nearest native of a framework: the one whose rule differs least from the rule of a call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gradclip.core.errors import GradclipError
from gradclip.core.rule import Rule
from gradclip.dialects import parameters
from gradclip.natives import NATIVES
from gradclip.natives.meaning import UNKNOWN, differences, value_of
from gradclip.natives.model import LOWER, NO_EFFECT, Applied, Native

__all__ = ["FRAMEWORKS", "Match", "Wanted", "nearest"]

FRAMEWORKS = ("torch", "tensorflow", "keras", "paddle", "jax")  #: the families of natives
#: the fields in which a native is still near, the least important first
_SMALL = ("keep_if_nan", "error_if_nonfinite", "nan_if_infinite", "eps")
_OF_A_NORM = {"scope", "order", "axes", "mean", "error_if_nonfinite"}
_LOWER_BOUND = "the lower bound"
_FAR, _LOST = 10**10, 10**9


@dataclass(frozen=True, kw_only=True, eq=False)
class Wanted:
    """A call whose nearest natives are wanted."""

    native: Native
    rule: Rule  #: a sample where only the running program knows a value
    written: Mapping[str, str]  #: "limit", "lower" or a parameter of the dialect's function -> the source of its argument
    is_symmetric: bool = True  #: whether the lower bound is the upper bound negated
    lost: tuple[str, ...] = ()  #: its arguments that no rule describes


@dataclass(frozen=True, eq=False)
class Match:
    """A native with the arguments of a call."""

    wanted: Wanted
    native: Native
    rule: Rule
    written: Mapping[str, str]  #: the parameter of its dialect's function -> the source of the argument
    lost: tuple[str, ...]  #: what the call says and the native cannot

    @cached_property
    def fields(self) -> frozenset[str]:
        """The fields in which the rules differ."""
        found = frozenset(differences(self.wanted.rule, self.rule))
        return found & _OF_A_NORM if self.native.applied is Applied.NORM else found

    @property
    def is_equal(self) -> bool:
        """Whether it clips alike, up to rounding."""
        return not self.fields and not self.lost

    @property
    def has_one_bound(self) -> bool:
        """Whether the call has two bounds, and the native one: its lower bound is the upper one negated."""
        return self.lost == (_LOWER_BOUND,)

    @property
    def is_near(self) -> bool:
        """Whether it clips alike but for the lower bound, for some arithmetic, or at a value that is rare."""
        if self.has_one_bound:
            return self.fields <= {"lower"}
        return self.fields <= set(_SMALL) and not self.lost

    @property
    def is_equivalent(self) -> bool:
        """Whether it counts as the equivalent: a norm must be the same, and a clip near."""
        return self.is_equal if self.native.applied is Applied.NORM else self.is_near

    @property
    def is_within(self) -> bool:
        """Whether both natives are of the same framework."""
        return self.native.family == self.wanted.native.family

    @property
    def _cost(self) -> tuple[Any, ...]:
        fields = sum(10 ** _SMALL.index(field) if field in _SMALL else _FAR for field in self.fields)
        is_alike = self.native.applied is self.wanted.native.applied
        return fields + _LOST * len(self.lost), not (is_alike and self.is_within), not self.native.is_own, not is_alike


def nearest(wanted: Wanted, framework: str) -> Match | None:
    """The native of a framework whose rule differs least; among equals one that is applied alike, then the first.

    >>> from gradclip.natives import BY_NAME
    >>> torch = BY_NAME["torch.nn.utils.clip_grad_norm_"]
    >>> found = nearest(Wanted(native=torch, rule=torch.rule(), written={"limit": "1.0"}), "tensorflow")
    >>> found.native.shown, sorted(found.fields)
    ('tf.clip_by_global_norm', ['eps', 'nan_if_infinite'])
    """
    matches = [match for other in _candidates(wanted.native, framework) if (match := _matched(wanted, other)) is not None]
    return min(matches, key=lambda match: match._cost, default=None)


def _candidates(native: Native, framework: str) -> list[Native]:
    is_norm = native.applied is Applied.NORM
    return [
        other
        for other in NATIVES
        if other.family == framework and other.framework != "jax" and other.status == "current" and other.dialect
        if not other.does_more and (other.applied is Applied.NORM) == is_norm and not (is_norm and other is native)
    ]


def _matched(wanted: Wanted, other: Native) -> Match | None:
    """A native with the arguments of a call; None if it refuses them."""
    rule, written = wanted.rule, wanted.written
    if other.applied is not Applied.NORM and rule.is_by_value != other.rule().is_by_value:
        return None
    takes = parameters(other.function)
    has = takes.keys() & other.signature.parameters.keys()  # a norm has fewer than its dialect's function
    sources, given, lost = _limits(wanted, other, list(takes))
    for name in has & written.keys() - NO_EFFECT - given.keys():
        sources[name] = written[name]
        given[name] = _known(written[name], rule.order if name == "norm_type" else getattr(rule, name, None))
    unknown = [name for name in written if name not in ("limit", "lower") and name not in has]
    lost += tuple(name for name in unknown if value_of(written[name]) is UNKNOWN)
    try:
        made = other.function(**given)
    except GradclipError:
        return None
    return Match(wanted, other, made, {name: sources[name] for name in takes if name in sources}, lost)


def _limits(wanted: Wanted, other: Native, takes: list[str]) -> tuple[dict[str, str], dict[str, Any], tuple[str, ...]]:
    """The limit and the bounds of a call for another native: their sources, their values, and what the native lacks."""
    rule, written = wanted.rule, wanted.written
    *lower, upper = other.needed
    if other.applied is Applied.NORM:
        return {}, {upper: math.inf}, wanted.lost
    if not (rule.is_by_value and other.rule().is_by_value):
        limit = _known(written["limit"], rule.upper if rule.is_by_value else rule.limit)
        return {upper: written["limit"]}, {upper: limit, **dict.fromkeys(lower, -limit)}, wanted.lost
    has_two = bool(LOWER.intersection(takes))
    names = [name for name in takes if name not in NO_EFFECT] if has_two and (lower or not wanted.is_symmetric) else [upper]
    sources = {name: written["lower" if name in LOWER else "limit"] for name in names}
    given = {name: _known(source, rule.lower if name in LOWER else rule.upper) for name, source in sources.items()}
    return sources, given, wanted.lost if has_two or wanted.is_symmetric else (*wanted.lost, _LOWER_BOUND)


def _known(source: str, sample: Any) -> Any:
    """The value of a source; a sample if only the running program knows it."""
    value = UNKNOWN if "{" in source else value_of(source)
    return sample if value is UNKNOWN else value
