"""A monitor as five lines for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradclip.core.errors import counted
from gradclip.steps.monitor.section import QUANTILES, Section

__all__ = ["blamed", "described", "percent", "short"]


def short(x: float) -> str:
    """Four digits.

    >>> short(0.123456), short(1.0), short(float("nan"))
    ('0.1235', '1', '-')
    """
    return "-" if math.isnan(x) else f"{x:.4g}"


def blamed(names: Sequence[str], step: int) -> str:
    """The first culprits, as the end of a line.

    >>> blamed(["a", "b", "c", "d"], 7)
    '; at step 7 in a, b and 2 more'
    """
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return f"; at step {step} in {', '.join(name or 'the gradient' for name in names[:2])}{more}"


def described(section: Section, title: str = "", culprits: tuple[Sequence[str], int] | None = None) -> str:
    """Five lines: how often, how much, the norms before and after, the steps that were not finite."""
    found = section.report()
    lines = [f"{title}{counted(section.steps, 'step')}, {section.clipped:,} clipped ({percent(found['clipped_fraction'])})"]
    lines[0] += f", {section.skipped:,} skipped" if section.skipped else ""
    lines[0] += f", {counted(section.changed, 'element')} at a bound" if section.changed else ""
    lines.append(f"  coefficient   {_coefficient(section)}")
    for name in ("before", "after"):
        if not (section.before if name == "before" else section.after).count:
            lines.append(f"  norm {name:<8} none")
            continue
        quantiles = "  ".join(f"p{100 * q:g} {short(found[f'norm_{name}_p{100 * q:g}'])}" for q in QUANTILES)
        mean, largest = (short(found[f"norm_{name}_{what}"]) for what in ("mean", "largest"))
        lines.append(f"  norm {name:<8} mean {mean}  {quantiles}  largest {largest}")
    steps = " to ".join(str(step) for step in section.not_finite_steps)
    known = "" if culprits is None else blamed(*culprits)
    lines.append(f"  not finite    {section.not_finite}" + (f" (step {steps})" if steps else "") + known)
    return "\n".join(lines)


def _coefficient(section: Section) -> str:
    """The mean coefficient and the mean limit, or why there is none."""
    if section.coefficients:
        clips = (
            f"clipped to {short(section.limit_total / section.limits)} in the mean" if section.limits else "nothing was clipped"
        )
        return f"mean {short(section.coefficient_total / section.coefficients)}; {clips}"
    if section.measured <= section.skipped:
        return "none: no step was clipped"
    return f"none: {'the norms came without a limit' if section.before.count else 'the rule clips by value'}"


def percent(fraction: float) -> str:
    """Three digits.

    >>> percent(0.64), percent(float("nan"))
    ('64 %', '-')
    """
    return "-" if math.isnan(fraction) else f"{100 * fraction:.3g} %"
