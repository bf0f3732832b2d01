"""The statistics of each gradient, and their table for a terminal."""

from __future__ import annotations

from dataclasses import dataclass

from gradclip.steps.monitor.text import percent, short

__all__ = ["Share", "Shares"]

_WIDEST = 60  #: characters of a name in the table
_HEADS = ("gradient", "share", "of its weight", "measured")


@dataclass(slots=True)
class Share:
    """The statistics of one gradient, as means over the steps that measured it."""

    name: str
    share: float  #: the share of the square of the total norm
    ratio: float  #: its norm divided by its parameter's; NaN if the parameter is unknown
    always_zero: bool
    measured: int  #: how often it was measured


class Shares(list[Share]):
    """A list whose text is a table, with a line for each gradient.

    >>> Shares([Share("head", 0.64, 0.01, False, 5), Share("unused", 0.0, float("nan"), True, 5)])
    gradient  share  of its weight  measured
    head       64 %           0.01         5
    unused      0 %              -         5  always zero
    """

    def __repr__(self) -> str:
        rows: list[tuple[str, str, str, str, bool]] = [
            (_cut(x.name), percent(x.share), short(x.ratio), str(x.measured), x.always_zero) for x in self
        ]
        if not rows:
            return "no gradients measured"
        widths = [max(map(len, column)) for column in zip(_HEADS, *(row[:4] for row in rows), strict=True)]
        lines = []
        for name, *numbers, is_zero in [(*_HEADS, False), *rows]:
            cells = [name.ljust(widths[0]), *(x.rjust(width) for x, width in zip(numbers, widths[1:], strict=True))]
            lines.append("  ".join(cells) + ("  always zero" if is_zero else ""))
        return "\n".join(lines)


def _cut(name: str) -> str:
    """A name that fits: of a long one its end, which tells it from its neighbours."""
    name = name or "the gradient"
    return name if len(name) <= _WIDEST else f"...{name[3 - _WIDEST :]}"
