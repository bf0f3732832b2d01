"""The choice of a limit, with its reason and warnings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradclip.core.errors import ArgumentError, counted
from gradclip.steps.advice.optimizers import is_scale_invariant, name_of
from gradclip.steps.advice.record import Divergence, Record, recorded
from gradclip.steps.monitor.text import short

__all__ = ["LEAST", "Candidate", "Choice", "choose", "order_bounds"]

_PERCENTILES = (50, 75, 90, 95, 99)
_RECOMMENDED = 0.9  # the first choice of Google's tuning playbook
_TOO_MANY = 0.5  # share of clipped steps above which the playbook lowers the learning rate
_NARROW = 1.25  # p90 / p50 below which a clip only makes the steps smaller
_DRIFT = 2.0  # ratio of early and late medians
_FEW = 100  # norms
LEAST = 20  # norms, to recommend anything
# After a run that diverged at once its usual norm is not known, and its first norms belong to the climb: a tenth of
# them, and at most 1, where most training scripts begin.
_BELOW, _USUAL = 0.1, 1.0


@dataclass(frozen=True)
class Candidate:
    """The effect of a limit on the recorded norms."""

    name: str  #: "p90", or the number itself
    limit: float
    clipped_fraction: float  #: the share of the steps with a finite norm
    coefficient_mean: float
    longest_run: int | None  #: the most clipped steps in a row; None if only a histogram is known
    clipped_early: float  #: the fraction in the first quarter of the steps
    clipped_late: float  #: and in the last
    skipped: int  #: the norms that it would have skipped as ``skip_above``: those above it, or not finite


@dataclass(frozen=True)
class Choice:
    """Candidates, one recommendation, its reason, and warnings. As text it is a table; :meth:`as_json` returns it as data."""

    steps: int
    not_finite: int
    candidates: tuple[Candidate, ...]
    recommended: Candidate
    reason: str
    warnings: tuple[str, ...]
    record: Record

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "steps": self.steps,
            "not_finite": self.not_finite,
            "diverged": asdict(self.record.diverged) if self.record.diverged else None,
            "recommended": asdict(self.recommended),
            "reason": self.reason,
            "warnings": list(self.warnings),
            "candidates": [asdict(candidate) for candidate in self.candidates],
        }

    def __str__(self) -> str:
        head = ("limit", "", "clipped", "mean coefficient", "longest run", "early", "late")
        rows = [head, *map(_row, self.candidates)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        head_line = counted(self.steps, "norm") + (f", {self.not_finite} more not finite" if self.not_finite else "")
        if (end := self.record.diverged) is not None:
            head_line = f"{counted(self.steps, 'norm')} of {end.total:,}, from before the run diverged at norm {end.at:,}"
        said = [f"Recommended: {self.recommended.limit:g}. {self.reason}", *(f"Note: {text}" for text in self.warnings)]
        return "\n".join([head_line, "", *lines, "", *said])

    def skipped(self, limit: Any) -> int:
        """How many of the recorded norms ``skip_above=limit`` would have skipped: those above it, and those not finite.

        Args:
            limit: a number, or one that follows the run, such as ``gradclip.limits.spike(10)``.

        Raises:
            ValueError: for a limit that follows the run, if the order of the norms is not known, as from a monitor.

        Example:
            >>> import gradclip
            >>> choice = gradclip.choose([1.0] * 50 + [30.0, float("nan")] + [1.0] * 50)
            >>> choice.skipped(20.0), choice.skipped(gradclip.limits.spike(10))
            (2, 2)
        """
        if isinstance(limit, (int, float)):
            return _skipped(self.record, float(limit))
        if self.record.in_order is None:
            what = "A limit that follows the run needs the norms in their order."
            raise ArgumentError(what, "the statistics of a monitor", "pass the norms themselves, as from a log.")
        state, many = limit.init(), 0
        for n in self.record.in_order:
            many += not n <= limit.limit(state)
            state = limit.observe(state, n)
        return many

    def plot(self, path: str | Path) -> None:
        """Write a picture, 1200 x 600: the norms with the recommended limit, and how much each limit would have clipped.

        Raises:
            ImportError: where matplotlib is not installed: ``pip install 'gradclip[monitor]'``.
        """
        from gradclip.steps.advice.picture import draw

        draw(self, path)


def choose(
    norms: Any,
    *,
    limits: Iterable[float] = (),
    norm_type: float = 2.0,
    parameters: int | None = None,
    recorded_type: float = 2.0,
    optimizer: object = "",
) -> Choice:
    """What each limit would have done to a run, and which one to take.

    The rule is that of Google's tuning playbook (https://github.com/google-research/tuning_playbook, "Gradient clipping"): a
    limit just above the typical norm, first the 90th percentile; if it clips more than half of the steps, lower the
    learning rate instead. Record the norms *before* a clip, without clipping.

    A small limit makes the steps of gradient descent shorter. Those of Adam and its like keep their length, so that the notes
    on small limits depend on the optimizer.

    A run that diverged is judged by the norms before it left its level: for good, or in an explosion as long as a tenth of the
    run, after which units may be dead. If these norms are fewer than a hundred, the limit is a tenth of the level, at most 1:
    the first norms of such a run belong to the climb.

    Args:
        norms: numbers in the order of the steps; or a :class:`gradclip.Monitor` or its state, which has quantiles within
            4.5 % and no runs of steps.
        limits: more candidates, besides the 50th, 75th, 90th, 95th and 99th percentile and 1.0.
        norm_type: the order p of the norm for the clip. If it differs from ``recorded_type``, a note gives the bounds of the
            limit.
        parameters: the number of elements of all gradients, for these bounds.
        recorded_type: the order of the recorded norm.
        optimizer: the one of the run, or its name in any framework: ``"AdamW"``.

    Returns:
        A ``Choice``: the candidates, the recommended one with its reason, and warnings. ``print`` shows it as a table.

    Raises:
        TypeError: for an entry that is not a number.
        ValueError: for fewer than 20 finite norms, if the run did not diverge; for a limit that is not positive.

    Example:
        >>> import gradclip
        >>> choice = gradclip.choose([1.0, 1.2, 0.9, 1.1, 1.4, 1.0, 2.0, 0.8, 1.3, 9.0] * 20)
        >>> choice.recommended.limit, choice.recommended.clipped_fraction
        (2.1, 0.1)
    """
    record = recorded(norms)
    named = [(f"p{p}", record.quantile(p / 100)) for p in _PERCENTILES]
    given = [_positive(limit) for limit in limits]
    fixed = [(f"{limit:g}", limit) for limit in dict.fromkeys([1.0, *given])]
    best = _candidate(record, "recommended", _limit(record))
    candidates = [_candidate(record, name, limit) for name, limit in sorted([*named, *fixed], key=lambda pair: pair[1])]
    if record.diverged is None and record.count < LEAST:
        hint = f"record the norm before the clip at every step, for at least {LEAST} steps; some hundred are better."
        raise ArgumentError("These are too few norms to choose a limit by.", counted(record.count, "norm"), hint)
    warnings = [*_warnings(record, candidates, name_of(optimizer)), *_order(best.limit, norm_type, recorded_type, parameters)]
    return Choice(record.count, record.not_finite, tuple(candidates), best, _reason(record, best), tuple(warnings), record)


def _positive(limit: float) -> float:
    if not 0 < float(limit) < math.inf:
        raise ArgumentError("A limit must be a positive number.", f"limit={limit}")
    return float(limit)


def _rounded_up(x: float) -> float:
    """The smallest number of two digits above ``x``: a limit that clips nothing up to ``x`` and is easy to read."""
    if x <= 0:
        return 1.0
    unit = max(10.0 ** (math.floor(math.log10(x)) - 1), math.ulp(0.0))  # the smallest float, for the smallest norms
    return float(f"{(math.floor(x / unit) + 1) * unit:.3g}")


def _candidate(record: Record, name: str, limit: float) -> Candidate:
    total = record.count
    mean = math.fsum(many * (limit / n if n > limit else 1.0) for n, many in record.norms) / total
    run = None
    if record.in_order is not None:
        runs = itertools.groupby(n > limit for n in record.in_order)
        run = max((len(list(group)) for is_above, group in runs if is_above), default=0)
    share, early, late = (_fraction(part, limit) for part in (record.norms, record.early, record.late))
    return Candidate(name, limit, share, mean, run, early, late, _skipped(record, limit))


def _skipped(record: Record, limit: float) -> int:
    return sum(many for n, many in record.norms if n > limit) + record.not_finite


def _fraction(part: list[tuple[float, int]], limit: float) -> float:
    total = sum(many for _, many in part)
    return sum(many for n, many in part if n > limit) / total if total else math.nan


def _row(candidate: Candidate) -> tuple[str, ...]:
    shares = [f"{100 * x:.1f} %" for x in (candidate.clipped_fraction, candidate.clipped_early, candidate.clipped_late)]
    name = candidate.name if candidate.name.startswith("p") else ""
    run = "-" if candidate.longest_run is None else str(candidate.longest_run)
    return short(candidate.limit), name, shares[0], f"{candidate.coefficient_mean:.3f}", run, *shares[1:]


def _limit(record: Record) -> float:
    if record.diverged is not None and record.count < _FEW:
        return min(_rounded_up(_BELOW * record.diverged.level), _USUAL)
    return _rounded_up(record.quantile(_RECOMMENDED))


def _reason(record: Record, best: Candidate) -> str:
    if record.diverged is not None and record.count < _FEW:
        return (
            f"The run diverged at once: {record.diverged}. So its usual norm is not known: this is a tenth of "
            f"{short(record.diverged.level)}, the lowest median before, and at most 1. "
            "If it diverges again, lower the learning rate; if it trains, record its norms and choose anew."
        )
    p50, p90 = record.quantile(0.5), record.quantile(0.9)
    return (
        f"It is just above the 90th percentile, {short(p90)}: the typical norm, {short(p50)}, passes, "
        f"and {100 * best.clipped_fraction:.1f} % of the steps are clipped."
    )


def _warnings(record: Record, candidates: list[Candidate], optimizer: str) -> Iterable[str]:
    if record.diverged is not None:
        yield from _of_the_end(record, record.diverged)
        return
    p50, p90 = record.quantile(0.5), record.quantile(0.9)
    if record.count < _FEW:
        yield f"a quantile of {counted(record.count, 'norm')} says little."
    if p90 < _NARROW * p50:
        does = _does(optimizer, "a clip among them is only a smaller learning rate")
        yield (
            f"p90 is only {p90 / p50:.2f} times p50: nearly all norms are alike. {does} "
            "Clip well above them, against spikes, or not at all."
        )
    early, late = (record.quantile(0.5, part) for part in (record.early, record.late))
    if not 1 / _DRIFT <= (early / late if late else math.inf) <= _DRIFT:
        yield f"the median norm goes from {short(early)} to {short(late)}: one number does not fit both ends."
    for candidate in candidates:
        if candidate.clipped_fraction > _TOO_MANY and not candidate.name.startswith("p"):
            share = f"{100 * candidate.clipped_fraction:.0f} %"
            does = _does(optimizer, "that only makes the learning rate smaller: avoid it")
            yield f"{candidate.name} would clip {share} of the steps. {does}"
    yield from _of_the_recording(record, optimizer)
    yield (
        "the norm grows with the loss: a sum instead of a mean, accumulated steps, a loss scale or another number of processes "
        "changes it, and the limit must change with it."
    )


def _does(optimizer: str, to_descent: str) -> str:
    """What a limit does that clips nearly each step: ``to_descent`` for an optimizer whose steps grow with the gradients."""
    is_invariant = is_scale_invariant(optimizer)
    if is_invariant is None:
        return f"With SGD {to_descent}; with Adam it hardly changes a step (--optimizer adam)."
    if not is_invariant:
        return f"With {optimizer} {to_descent}."
    return (
        f"With {optimizer} it is no smaller learning rate: a step is as long at any scale of the gradients, "
        "and all of them count alike in its averages."
    )


def _of_the_end(record: Record, end: Divergence) -> Iterable[str]:
    """What a run that diverged says: nothing about its shares of clipped steps, which are those of the explosion."""
    if record.count >= _FEW:
        yield f"the run diverged at norm {end.at:,} of {end.total:,}: {end}. Norms from there on do not count here."
    if record.clipped:
        yield f"{record.clipped} of the steps before were clipped: lower that limit, or the learning rate."


def _of_the_recording(record: Record, optimizer: str) -> Iterable[str]:
    if record.clipped:
        at = "" if math.isnan(record.limit) else f" at {short(record.limit)}"
        yield (
            f"{record.clipped} of these steps were clipped{at}, and norms depend on the clip of the run. Record without one, "
            "or run at the new limit and choose again."
        )
        if record.clipped > _TOO_MANY * record.steps and not is_scale_invariant(optimizer):
            yield "that is more than half. If the run diverges at the new limit, lower the learning rate."
    largest = max(n for n, _ in record.norms)
    same = sum(many for n, many in record.norms if n >= largest * (1 - 1e-5))
    if record.in_order is not None and largest and same > 0.05 * record.count and same > 2:
        yield f"{same} norms are the largest, {short(largest)}: they seem to be norms after a clip. Record the norm before it."
    if record.not_finite:
        yield f"{counted(record.not_finite, 'norm')} not finite. No limit helps against that; such norms are left out."


def _order(limit: float, wanted: float, recorded_type: float, parameters: int | None) -> Iterable[str]:
    if wanted == recorded_type:
        return
    if parameters is None:
        named = f"these are {recorded_type:g}-norms, and a limit for the {wanted:g}-norm is another number"
        yield f"{named}; the number of parameters bounds it."
        return
    low, high = order_bounds(limit, wanted, recorded_type, parameters)
    between = f"between {short(low)} and {short(high)}"
    yield f"as a limit for the {wanted:g}-norm, {limit:g} lies {between}; record that norm to know."


def order_bounds(norm: float, wanted: float, recorded_type: float, parameters: int) -> tuple[float, float]:
    """The bounds of the p-norm of a vector with ``parameters`` elements and a known norm of another order.

    For p < r it is ``|g|_r <= |g|_p <= N**(1/p - 1/r) |g|_r``, by Hölder's inequality.

    Raises:
        ValueError: for orders or a number of parameters that are not positive.

    >>> order_bounds(1.0, 1.0, 2.0, 10_000), order_bounds(1.0, float("inf"), 2.0, 10_000)
    ((1.0, 100.0), (0.01, 1.0))
    """
    if not wanted > 0 or not recorded_type > 0 or not parameters > 0:
        received = f"norm_type={wanted}, recorded_type={recorded_type}, parameters={parameters}"
        raise ArgumentError("The orders and the number of parameters must be positive.", received)
    try:
        factor = float(parameters) ** (1 / wanted - 1 / recorded_type)
    except OverflowError:
        factor = math.inf if wanted < recorded_type else 0.0
    return min(norm, norm * factor), max(norm, norm * factor)
