"""The record of a mistake, and one that was found in a place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gradclip.rounds.events import Event

__all__ = ["DOCTOR", "LINT", "Found", "Mistake"]

LINT, DOCTOR = "lint", "doctor"
_LIMIT = "{limit}"  #: where the line to write has the limit


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake."""

    code: str
    title: str
    reason: str  #: one sentence; a place may have a more specific one
    advice: str  #: what to do, in a framework without an entry of its own
    severity: str = "error"  #: "error" (training goes wrong) or "warning" (it probably does)
    seen_by: frozenset[str] = frozenset({LINT})
    ways: Mapping[str, str] = field(default_factory=dict)  #: what to do in a framework, by its name
    was: tuple[str, ...] = ()  #: codes that it had before
    like: str = ""  #: the code of a mistake whose page shows a wrong and a right program for this one, too
    told_on: str = ""  #: else a page of the documentation
    spoils_norms: bool = False  #: the clip's norms are not those of the gradients that a mended program steps
    needs_norms: bool = False  #: it is computed from these norms

    @property
    def shown_by(self) -> str:
        """The code whose page shows a wrong and a right program; "" if none does."""
        return self.code if LINT in self.seen_by else self.like

    def advice_in(self, framework: str, limit: float | None = None) -> str:
        """What to do in a framework, with this limit.

        >>> from gradclip.rounds import MISTAKES
        >>> MISTAKES["GM107"].advice_in("torch")
        'Call `scaler.unscale_(optimizer)` before the clip.'
        >>> MISTAKES["GD101"].advice_in("keras", 0.5)
        'Give the optimizer `global_clipnorm=0.5`.'
        """
        return self.ways.get(framework, self.advice).replace(_LIMIT, "max_norm" if limit is None else f"{limit:g}")


@dataclass(frozen=True, slots=True)
class Found:
    """A mistake in one place."""

    code: str
    event: Event  #: where it is reported
    reason: str  #: what happens; "" for the sentence of the table
    advice: str = ""  #: if it is more than the table's
    about: tuple[Event, ...] = ()  #: the other events that it is about
