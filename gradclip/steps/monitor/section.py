"""The statistics of one rule or one group: counters, histograms before and after the clip, a timeline of fixed length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradclip.limits.histogram import LARGEST, Histogram, bin_of, loaded_bins, quantile_of_bins
from gradclip.limits.stored import Stored

__all__ = ["QUANTILES", "WINDOWS", "Section", "Window"]

QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
WINDOWS = 128  #: the most windows of a timeline; when it is full, each two become one


class Window:
    """A stretch of steps, for the picture."""

    __slots__ = ("bins", "clipped", "limit", "limits", "not_finite", "steps", "zeros")

    def __init__(self) -> None:
        self.steps = self.clipped = self.not_finite = self.zeros = self.limits = 0
        self.limit = 0.0  #: the sum of the limits of ``limits`` clipped steps
        self.bins: dict[int, int] = {}

    def put(self, norm: float) -> None:
        """Count a norm before the clip."""
        if norm:
            k = bin_of(norm)
            self.bins[k] = self.bins.get(k, 0) + 1
        else:
            self.zeros += 1

    def merge(self, other: Window) -> None:
        """Add the other's steps to this window."""
        for name in ("steps", "clipped", "not_finite", "zeros", "limits", "limit"):
            setattr(self, name, min(getattr(self, name) + getattr(other, name), LARGEST))
        for k, many in other.bins.items():
            self.bins[k] = self.bins.get(k, 0) + many

    def quantile(self, q: float) -> float:
        """The ``q``-quantile of the norms before the clip; NaN without norms."""
        return quantile_of_bins(self.bins, self.zeros, q) if self.bins or self.zeros else math.nan

    def state(self) -> list[Any]:
        """Plain numbers and lists."""
        bins = sorted(self.bins)
        head = [self.steps, self.clipped, self.not_finite, self.zeros, self.limits, self.limit]
        return [*head, bins, [self.bins[k] for k in bins]]

    @classmethod
    def loaded(cls, state: Stored) -> Window:
        """The window with this state."""
        made = cls()
        *counts, limit, bins, many = state.entries(8)
        made.steps, made.clipped, made.not_finite, made.zeros, made.limits = (x.whole() for x in counts)
        made.limit = limit.number()
        made.bins = loaded_bins(bins, many)
        return made


_COUNTERS = ("steps", "measured", "clipped", "coefficients", "limits", "not_finite")
_LATER = ("skipped", "changed")  # a state from before has none of these
_SUMS = ("coefficient_total", "limit_total")


class Section:
    """The norms of one rule."""

    def __init__(self) -> None:
        self.steps = 0
        self.measured = 0  #: steps with a finite norm
        self.clipped = 0  #: the steps of these that were taken, with a coefficient below 1, or a changed element
        self.skipped = 0  #: steps that were not taken
        self.changed = 0  #: elements at a bound, of a rule by value
        self.coefficients = 0  #: the number of known coefficients
        self.coefficient_total = 0.0
        self.limits = 0  #: the number of known limits of clipped norms
        self.limit_total = 0.0
        self.not_finite = 0  #: norms that are not finite
        self.not_finite_steps: list[int] = []  #: the first and the last such step
        self.before, self.after = Histogram(), Histogram()
        self.width = 1  #: the steps of a window
        self.windows: list[Window] = []

    def add(
        self,
        norms: Sequence[float],
        coefficients: Sequence[float | None],
        *,
        is_skipped: bool = False,
        changed: float | None = None,
    ) -> None:
        """Count one step; ``changed`` is the number of elements at a bound, of a rule by value."""
        window = self._window()
        window.steps += 1
        is_clipped, is_measured, is_broken = bool(changed) and not is_skipped, changed is not None, False
        self.changed += int(changed or 0)
        for norm, coefficient in zip(norms, coefficients, strict=True):
            if not 0.0 <= norm < math.inf:
                is_broken = True
                self.not_finite += 1
                continue
            is_measured = True
            self.before.add(norm)
            window.put(norm)
            if coefficient is not None and not is_skipped:
                self.coefficients += 1
                self.coefficient_total += coefficient
                after = norm * coefficient
                self.after.add(after, coefficient < 1.0)
                if coefficient < 1.0:
                    is_clipped = True
                    self.limits += 1
                    self.limit_total = min(self.limit_total + after, LARGEST)
                    window.limits += 1
                    window.limit = min(window.limit + after, LARGEST)
        if is_broken:
            window.not_finite += 1
            self.not_finite_steps = [*self.not_finite_steps[:1], self.steps]
        self.steps += 1
        self.measured += is_measured
        self.skipped += is_skipped
        self.clipped += is_clipped
        window.clipped += is_clipped

    def _window(self) -> Window:
        if self.windows and self.windows[-1].steps < self.width:
            return self.windows[-1]
        while len(self.windows) >= WINDOWS:
            self._fold()
        self.windows.append(Window())
        return self.windows[-1]

    def _fold(self) -> None:
        """Merge the windows two by two."""
        for one, other in zip(self.windows[::2], self.windows[1::2], strict=False):
            one.merge(other)
        self.windows, self.width = self.windows[::2], self.width * 2

    def merge(self, other: Section) -> None:
        """Add the counts of another section, as later steps."""
        other = Section.loaded(Stored(other.state_dict(), "monitor"))  # its windows may be folded
        broken = self.not_finite_steps + [self.steps + step for step in other.not_finite_steps]
        self.not_finite_steps = broken[:1] + broken[1:][-1:]
        for name in (*_COUNTERS, *_LATER, *_SUMS):
            setattr(self, name, min(getattr(self, name) + getattr(other, name), LARGEST))
        self.before.merge(other.before)
        self.after.merge(other.after)
        while self.width != other.width or len(self.windows) + len(other.windows) > WINDOWS:
            (self if self.width <= other.width else other)._fold()
        self.windows += other.windows

    def report(self) -> dict[str, float]:
        """A flat dict; an unknown number is NaN or missing."""
        found: dict[str, float] = {
            "steps": self.steps,
            "clipped_steps": self.clipped,
            "skipped_steps": self.skipped,
            "clipped_fraction": self.clipped / self.measured if self.measured else math.nan,
            "coefficient_mean": self.coefficient_total / self.coefficients if self.coefficients else math.nan,
            "not_finite": self.not_finite,
        }
        if self.not_finite_steps:
            found["not_finite_first_step"] = self.not_finite_steps[0]
            found["not_finite_last_step"] = self.not_finite_steps[-1]
        if self.changed:
            found["changed_elements"] = self.changed
        for name, seen in (("norm_before", self.before), ("norm_after", self.after)):
            found[f"{name}_mean"] = seen.mean
            found |= {f"{name}_p{100 * q:g}": seen.quantile(q) for q in QUANTILES}
            found[f"{name}_largest"] = seen.largest if seen.count else math.nan
        return found

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {
            **{name: getattr(self, name) for name in (*_COUNTERS, *_LATER, *_SUMS)},
            "not_finite_steps": list(self.not_finite_steps),
            "before": self.before.state_dict(),
            "after": self.after.state_dict(),
            "width": self.width,
            "windows": [window.state() for window in self.windows],
        }

    @classmethod
    def loaded(cls, state: Stored) -> Section:
        """The section with this state.

        Raises:
            ValueError: for an entry that is missing or wrong.
        """
        made = cls()
        state.check_keys(made.state_dict().keys() - set(_LATER), _LATER)
        for name in _COUNTERS:
            setattr(made, name, state[name].whole())
        for name in _LATER:
            setattr(made, name, state[name].whole() if name in state.given else 0)
        for name in _SUMS:
            setattr(made, name, state[name].number())
        made.not_finite_steps = [step.whole() for step in state["not_finite_steps"].entries()]
        made.before, made.after = Histogram.loaded(state["before"]), Histogram.loaded(state["after"])
        made.width, made.windows = state["width"].whole(1), list(map(Window.loaded, state["windows"].entries()))
        return made
