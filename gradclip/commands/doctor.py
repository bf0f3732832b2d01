"""The command ``gradclip doctor``: it runs a training and says what is wrong with its clipping."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from gradclip.commands.common import print_json
from gradclip.core.errors import ArgumentError, shown

__all__ = ["DESCRIPTION", "EPILOG", "add_options", "main"]

STEPS = 20
DESCRIPTION = """\
Run a training script for a few optimizer steps, watch its gradients, and report what is wrong with its
clipping. The script runs in this process, just as python would run it, and its numbers do not change.
This command runs code: the script and everything it imports.
"""
EPILOG = """\
what comes after -- is for the script.

examples:
  gradclip doctor train.py
  gradclip doctor train.py --steps 50 -- --lr 0.1 --epochs 1
  gradclip doctor -m package.train --plot norms.png
  gradclip doctor --ranks 4 train.py                          4 processes, as torchrun starts them
  torchrun --nproc-per-node 2 -m gradclip doctor train.py     process 0 reports for all

It watches what torch.multiprocessing.spawn starts, and no other processes. `gradclip explain GD101` explains a finding.

exit status: 0 if nothing is wrong; 1 if something is; 2 for wrong usage, a script that fails, or one without a step,
and if the watch itself fails: the script then runs on without it
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.usage = "gradclip doctor [options] SCRIPT [-- ARGUMENT ...]"
    add = command.add_argument
    add("script", metavar="SCRIPT", nargs="?", help="the training script")
    add("-m", metavar="MODULE", dest="module", help="run a module instead, as python -m does")
    add("--steps", type=_positive, default=STEPS, metavar="N", help="how many steps to watch (default: %(default)s)")
    text = "run it in N processes of this machine, as torchrun does; process 0 reports for all"
    add("--ranks", type=_positive, metavar="N", help=text)
    add("--compiled", action="store_true", help="keep compiled code compiled; by default it runs eagerly, to be watched")
    add("--json", action="store_true", help="print one JSON document; the script's own output goes to standard error")
    add("--plot", metavar="FILE", help="also draw the norms, as the monitor does; needs gradclip[monitor]")
    command.set_defaults(ends_by_signal=False)  # signals are the script's
    parse = command.parse_known_args

    def parse_own(args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        """Parse the words before ``--``; the others are the script's."""
        given = list(args or ())
        place = given.index("--") if "--" in given else len(given)
        options, extra = parse(given[:place], namespace)
        options.arguments = given[place + 1 :]
        return options, extra

    vars(command).update(parse_known_args=parse_own, unknown="; what is for the script comes after --")


def _positive(value: str) -> int:
    number = int(value) if value.isdecimal() and len(value) < 9 else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a positive whole number, not {shown(value)}")
    return number


def main(options: argparse.Namespace) -> int:
    """Run the command."""
    from gradclip.doctor import imports, program
    from gradclip.doctor.children import Children
    from gradclip.doctor.launch import is_first, launch
    from gradclip.doctor.recorder import Recorder
    from gradclip.doctor.report import Report
    from gradclip.doctor.threads import Leaving
    from gradclip.source import interrupts
    from gradclip.steps.monitor import picture

    if (options.script is None) == (options.module is None):
        hint = "gradclip doctor train.py, or gradclip doctor -m package.train; the script's own arguments follow --."
        raise ArgumentError("The doctor needs one script or one module.", _received(options), hint)
    if options.plot is not None:
        picture.pyplot()
    if options.ranks is not None:
        with interrupts.ending():
            return launch(options.ranks, list(_words(options)))
    recorder = Recorder(options.steps, _progress(options.steps, is_first()), to_run_eagerly=not options.compiled)
    recorder.is_first = is_first()
    children = Children(recorder)
    recorder.in_others = children.watching
    beside, leaving = recorder.guard.beside, Leaving() if options.is_process else None
    for start in (recorder.leave_forks, lambda: imports.start(recorder)):
        beside(start)()
    try:
        with _elsewhere(options.json):
            is_module = options.module is not None
            target = options.module if is_module else options.script
            ended = program.run(target, options.arguments, is_module, beside(recorder.is_over, lambda: False))
            beside(recorder.end_threads)(ended.how == "stopped")
    finally:
        beside(recorder.close, recorder.restore)()
    is_stopped_there = children.take()
    if recorder.is_first:
        sys.stdout.flush()
        report = Report(program.Ended("stopped") if is_stopped_there and ended.how == "ended" else ended, recorder)
        if options.json:
            print_json(report.as_json())
        else:
            print(f"\n{report}")
        if options.plot is not None:
            report.plot(options.plot)
    is_awaited = recorder.is_first or not ended.is_failure  # the others of torchrun end with a process that fails
    for last in recorder.last if is_awaited else ():
        with contextlib.suppress(Exception):
            last()
    status = report.status if recorder.is_first else 2 * (ended.is_failure or recorder.guard.fault is not None)
    if leaving is not None and ended.how == "stopped":
        leaving.at_exit(status)
    return status


def _words(options: argparse.Namespace) -> Iterator[str]:
    """The command line of one process."""
    yield from ("--steps", str(options.steps))
    for name in ("compiled", "json"):
        yield from [f"--{name}"] if vars(options)[name] else ()
    yield from ("--plot", options.plot) if options.plot is not None else ()
    yield from ("-m", options.module) if options.module is not None else (options.script,)
    yield from ("--", *options.arguments)


def _received(options: argparse.Namespace) -> str:
    return f"SCRIPT={options.script!r}, -m {options.module!r}"


@contextlib.contextmanager
def _elsewhere(is_json: bool) -> Iterator[None]:
    """Where the script prints, and with it the processes that it starts and libraries in C."""
    if not is_json:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        (sys.__stdout__ or sys.stdout).flush()
        os.dup2(kept, 1)
        os.close(kept)


def _progress(steps: int, is_shown: bool) -> Any:
    """A line that counts the steps, on a terminal only."""
    if not (is_shown and sys.stderr.isatty()):
        return lambda done: None

    def show(done: int) -> None:
        end = "\r\x1b[K" if done >= steps else ""
        sys.stderr.write(f"\rgradclip doctor: step {done} of {steps}{end}")
        sys.stderr.flush()

    return show
