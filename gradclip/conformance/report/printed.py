"""Prints a report: all of it, or the first screen of a long one; in colour on a terminal, which needs rich."""

from __future__ import annotations

import shutil
from typing import TextIO

from gradclip.conformance.report import brief
from gradclip.conformance.report.text import NARROWEST, WIDEST, lines
from gradclip.conformance.report.view import View

__all__ = ["show"]


def show(view: View, stream: TextIO, verbose: bool = False, complete: bool = False) -> None:
    """Print a report.

    Args:
        view: the report, laid out.
        stream: the output; in colour if it is a terminal.
        verbose: every failed case, and the names of unclaimed ones; else one for each kind of failure.
        complete: every kind of failure and every operation, also if that is more than one screen.
    """
    width = min(WIDEST, shutil.get_terminal_size().columns)
    said = list(lines(view, width, verbose))
    if len(said) > brief.MOST_LINES and not (verbose or complete):
        said = brief.screen(view, max(width, NARROWEST))
    if not stream.isatty():
        stream.writelines(f"{text}\n" for text, _ in said)
        return
    from rich.console import Console  # here: reading plain lines needs nothing
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    for text, style in said:
        console.print(Text(text, style), soft_wrap=True)
