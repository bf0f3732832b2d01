"""``gradclip demo``: why to clip; then the same clipped training with every installed framework, and whether they agree."""

from __future__ import annotations

import argparse

from gradclip.commands.common import print_json, require
from gradclip.commands.demo_runs import run
from gradclip.core.errors import shown

__all__ = ["main"]

DESCRIPTION = """\
Show a training run that explodes without clipping. Then train a small digit
classifier with every installed framework, under three dialects, and check that
all frameworks clip to the same numbers.
"""
EPILOG = "exit status: 0 if all agree; 1 if not; 2 for wrong usage"
_STEPS = 300
_MOST_STEPS = 3000  # later the gradients vanish, and rounding dominates


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = command.add_argument
    add("--steps", type=_steps, default=_STEPS, help="training steps for each dialect (default: %(default)s)")
    add("--frameworks", metavar="A,B", help="train only with these; NumPy always runs (default: all that are installed)")
    add("--json", action="store_true", help="print one JSON document instead of text")


def _steps(value: str) -> int:
    steps = int(value) if value.isdecimal() and len(value) < 9 else 0
    if not 1 <= steps <= _MOST_STEPS:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {_MOST_STEPS}, not {shown(value)}")
    return steps


def main(options: argparse.Namespace) -> int:
    """Run the command."""
    names = None if options.frameworks is None else [name.strip() for name in options.frameworks.split(",")]
    require("demo", "demo", "numpy", "rich", "sklearn")
    from gradclip.commands import demo_report  # after the check: it needs rich

    with demo_report.Shown() as progress:
        outcome = run(options.steps, names, progress)
    if options.json:
        print_json(outcome.as_json())
    else:
        demo_report.show(outcome)
    return 0 if outcome.good else 1
