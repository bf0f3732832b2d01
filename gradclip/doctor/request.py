"""A clip that a script calls, as a watch asks it: what it clips, by what limit, and what it returned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradclip.doctor.events import Clip, Ids, these
from gradclip.doctor.places import Place
from gradclip.doctor.seen import total

__all__ = ["Made", "Request", "as_number", "returned", "skips"]

_LARGE, _NEAR = 64, 16  #: a limit near a large loss scale may be a multiple of it: others are far smaller


@dataclass(slots=True)
class Request:
    """A clip that the script calls."""

    name: str
    tensors: list[Any]  #: parameters or gradients
    limit: Any
    order: float = 2.0
    is_value: bool = False
    is_each: bool = False
    is_iterator: bool = False
    are_params: bool = False  #: the clip takes the gradients that the tensors have, and never a tensor for one
    is_partial: bool = False  #: other processes hold a part, and no tensor says so: then nothing is compared
    unread: str = ""  #: why the script's own run, which is compiled, does not read the limit
    norm: Any = None  #: the norm that the call brings, by which it scales
    other: Callable[[list[Any]], Any] | None = field(default=None)  #: the same clip of copies, with the other implementation
    own: Callable[[list[Any]], Any] | None = field(default=None)

    def event(self, where: Place, params: Ids, before: Sequence[float], after: Sequence[float], scale: float) -> Clip:
        """The clip as an event, from the norms of the gradients before and after it, and the last scale of a loss."""
        limit = as_number(self.limit)
        norms = [max(x, default=0.0) if self.is_each else total(x, self.order) for x in (before, after)]
        return Clip(
            where=where,
            params=these(params),
            text=self.name,
            limit=limit,
            kind="value" if self.is_value else "each" if self.is_each else "norm",
            order=self.order,
            unread=self.unread,
            has_norm=self.norm is not None,
            only_measures=limit == math.inf,
            is_scaled=limit is not None and _is_scaled(limit, scale),
            is_iterator=self.is_iterator,
            before=math.nan if self.is_partial else norms[0],
            after=math.nan if self.is_partial else norms[1],
        )


@dataclass(slots=True)
class Made:
    """A clipped gradient that a clip returned."""

    grad: Any  #: kept alive, so that no id is used twice
    clip: Clip
    thread: int
    params: set[int] = field(default_factory=set)  #: those that took it


def as_number(x: Any) -> float | None:
    """A limit as a float: None and a truth value stay what they are, and anything that is no number becomes NaN."""
    try:
        return x if x is None or isinstance(x, bool) else float(x)
    except (TypeError, ValueError, RuntimeError):
        return math.nan


def skips(result: Any) -> bool:
    """Whether the result of gradclip's clip says that the step is to be left out."""
    return bool(getattr(result, "skip", False))


def returned(result: Any) -> float:
    """The norm that a clip returned, or was given; NaN without one."""
    number = as_number(result.norm if hasattr(result, "norm") and hasattr(result, "grads") else result)
    return math.nan if number is None else number


def _is_scaled(limit: float, scale: float) -> bool:
    """Whether a limit is a number of few digits times a loss scale, which is a power of 2.

    >>> _is_scaled(0.5 * 1024, 1024), _is_scaled(1.0, 1024), _is_scaled(1e4, 1024)
    (True, False, False)
    """
    number = limit / scale
    return _LARGE <= scale <= limit * _NEAR < math.inf and math.isclose(number, float(f"{number:.3g}"), rel_tol=1e-6)
