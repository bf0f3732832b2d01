"""The command ``gradclip choose``: which limit, by the norms that a run has recorded."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any

from gradclip.choose import choose
from gradclip.commands.logs import read_log
from gradclip.errors import GradclipError

__all__ = ["add_choose"]

_DESCRIPTION = """\
What each limit would have done to the norms of a run, and one recommendation with its reason: just above
the typical norm, first the 90th percentile; where more than half of the steps are clipped, a lower
learning rate instead. https://github.com/google-research/tuning_playbook, "Gradient clipping".
"""
_EPILOG = """\
a log is:
  norms.jsonl     a number a line, or an object of which --key is the norm
  metrics.csv     with a header, of which --key is the column
  monitor.json    json.dump(monitor.state_dict(), file) of a gradclip.Monitor
  runs/           TensorBoard's events, of which --key is the tag

Record the norm before the clip, at every step, of a run without one: clip with a limit of infinity.

exit status: 0; 2 for wrong usage, and for a log without norms
"""


def add_choose(commands: Any) -> None:
    """Add the command to those of ``gradclip``.

    Args:
        commands: what ``ArgumentParser.add_subparsers`` returned.
    """
    command: argparse.ArgumentParser = commands.add_parser(
        "choose",
        help="which limit to clip by, from the norms of a run",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=_choose)
    add = command.add_argument
    add("log", metavar="LOG", help="the norms that a run has recorded")
    add("--key", metavar="NAME", help="which number of each line, column or tag is the norm")
    add("--limit", action="append", type=_positive, default=[], metavar="L", dest="limits", help="also this limit; repeatable")
    add("--norm-type", type=_positive, default=2.0, metavar="P", help="the order of the norm to clip by (default: 2)")
    add("--parameters", type=int, metavar="N", help="how many elements all gradients have: bounds a norm of another order")
    add("--picture", metavar="FILE", help="draw it, 1200 x 600; needs gradclip[monitor]")
    add("--json", action="store_true", help="print one JSON document instead of text")


def _positive(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be a positive number, not {value!r}")
    return number


def _choose(options: argparse.Namespace) -> int:
    try:
        norms = read_log(options.log, options.key)
        choice = choose(norms, limits=options.limits, norm_type=options.norm_type, parameters=options.parameters)
        if options.picture:
            choice.plot(options.picture)
    except (GradclipError, OSError, UnicodeDecodeError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(choice.as_json(), indent=2) if options.json else choice)
    return 0
