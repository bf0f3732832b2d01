"""The command ``gradclip choose``: it recommends a limit from the recorded norms of a run."""

from __future__ import annotations

import argparse
import json
import math
import sys

from gradclip.commands.choose_logs import read_log
from gradclip.core.errors import ArgumentError, shown
from gradclip.steps.advice import Choice, choose

__all__ = ["DESCRIPTION", "EPILOG", "add_options", "main"]

DESCRIPTION = """\
Show what each limit would have done to the norms of a run, recommend one, and say why. The limit should
be just above the typical norm: try the 90th percentile first. If a limit would clip more than half of
the steps, lower the learning rate instead; under Adam and the like, such a limit hardly changes a step.
Source: https://github.com/google-research/tuning_playbook, "Gradient clipping".
"""
EPILOG = """\
a log is one of:
  norms.jsonl     each line is a number, or an object with the norm under --key
  metrics.csv     has a header; --key names the column
  monitor.json    written by json.dump(monitor.state_dict(), file) for a gradclip.Monitor
  runs/           has TensorBoard's event files; --key names the tag
  -               standard input, as one of the first three; a pipe such as <(...) works too

Log the norm before the clip, at every step of a run that does not clip: set the limit to infinity. Below 20
norms nothing is recommended.

examples:
  gradclip choose norms.jsonl
  gradclip choose norms.jsonl --optimizer adamw
  gradclip choose runs/ --key train/grad_norm --picture norms.png

exit status: 0; 2 for wrong usage, and for a log without norms
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = command.add_argument
    add("log", metavar="LOG", help="the norms of a run")
    add("--key", metavar="NAME", help="the key, column or tag of the norm")
    add(
        "--limit",
        action="append",
        type=_positive,
        default=[],
        metavar="L",
        dest="limits",
        help="also try this limit; repeatable",
    )
    text = "of the run, as any framework names it: adam, SGD, ...; what a small limit does depends on it"
    add("--optimizer", default="", metavar="NAME", help=text)
    add("--norm-type", type=_positive, default=2.0, metavar="P", help="order of the norm (default: 2)")
    add("--parameters", type=int, metavar="N", help="number of elements of all gradients; bounds norms of another order")
    add("--picture", metavar="FILE", help="also draw the choice, 1200 x 600; needs gradclip[monitor]")
    add("--json", action="store_true", help="print one JSON document instead of text")


def _positive(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be a positive number, not {value!r}")
    return number


def main(options: argparse.Namespace) -> int:
    """Run the command."""
    norms = read_log(options.log, options.key, lambda text: print(text, file=sys.stderr))
    names = ("limits", "norm_type", "parameters", "optimizer")
    choice = choose(norms, **{name: getattr(options, name) for name in names})
    if options.picture is not None:
        _draw(choice, options.picture)
    print(json.dumps(choice.as_json(), indent=2) if options.json else choice)
    return 0


def _draw(choice: Choice, path: str) -> None:
    try:
        if not path:
            raise ValueError("an empty name")
        choice.plot(path)
    except ValueError as error:  # an ending that matplotlib does not know
        raise ArgumentError("The picture cannot be written.", f"{shown(path)}: {error}") from None
