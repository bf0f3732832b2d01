"""The command ``gradclip conformance``: its options. It imports the suite when it runs."""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from gradclip.commands.common import require, width
from gradclip.core.errors import ArgumentError, counted

if TYPE_CHECKING:
    from gradclip.conformance.cases import Plan
    from gradclip.conformance.result import Report
    from gradclip.conformance.specification import Specification

__all__ = ["DESCRIPTION", "EPILOG", "add_options", "main"]

_LONG = 30.0  #: seconds that nobody waits for without a word
_NARROWEST = 60  #: columns

DESCRIPTION = """\
Test whether a clip does what its name says. The conformance suite runs on gradclip's backends, on the
frameworks' own functions (the natives), or on your own clip. Each target runs in its own process.
Your target is code: this command runs it, and everything its file imports.
"""
EPILOG = """\
a target is:
  gradclip:torch      gradclip on a framework's arrays (numpy, torch, tensorflow, paddle, jax)
  native:torch        the framework's own clips (torch, tensorflow, paddle, optax, keras)
  native:keras@torch  Keras on one of its backends, else on that of KERAS_BACKEND
  my.module:target    an object with the members of gradclip.conformance.Target
  clip.py:clip        the same, or a function def clip(grads, max_norm); its names or --dialect say what it means
Without a target, gradclip runs on every installed framework, which takes minutes.

examples:
  gradclip conformance
  gradclip conformance native:torch native:optax --html report.html
  gradclip conformance train.py:my_clip --dialect torch.clip_grad_norm_
  gradclip conformance train.py:my_copy --dialect torch.clip_grad_norm_ --like native:torch
  gradclip conformance train.py:clip --ranks 4
  gradclip conformance --dialect tensorflow --select "*/E*" --list

A case that a target does not claim is not run, and counts as unclaimed. The known failures of the natives are declared.

exit status: 0 if all targets conform; 1 if one does not; 2 for wrong usage; 130 if interrupted
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.usage = "gradclip conformance [options] [TARGET ...]"
    add = command.add_argument
    add("targets", metavar="TARGET", nargs="*", help="the clip to test")
    text = 'run only this dialect ("torch") or operation ("torch.clip_grad_norm_"); repeatable'
    add("--dialect", action="append", metavar="D", dest="dialects", help=text)
    text = 'run only cases whose id matches ("torch.*/E*") or contains this; repeatable'
    add("--select", action="append", metavar="PATTERN", help=text)
    text = "the framework of a function's arrays (default: what its annotations name, or its file imports)"
    add("--arrays", metavar="FRAMEWORK", help=text)
    add(
        "--takes",
        choices=("gradients", "parameters", "model", "optimizer", "named parameters"),
        metavar="WHAT",
        help="what a function takes, if the name of its first argument and a trial call do not say: gradients, parameters, "
        "model, optimizer or 'named parameters'",
    )
    text = "the function clips in place, or with --no-in-place it does not (default: what a trial call does)"
    add("--in-place", action=argparse.BooleanOptionalAction, help=text)
    add("--like", metavar="native:NAME", help="for a copy of a native: accept the native's results too, where gradclip departs")
    add("--xfails", metavar="FILE", help='expected failures: JSON, {"TARGET NAME": {"CASE": "reason"}}; strict')
    add("--vectors", metavar="PATH", help="a vector file or a folder of them, instead of the suite's")
    text = "the time limit of a case (default: 60, with --ranks 20)"
    add("--seconds", "--timeout", type=_seconds, metavar="N", help=text)
    add("--json", metavar="FILE", help="write the report as JSON; - for standard output, instead of the text")
    add("--html", metavar="FILE", help="write the report as one HTML page")
    add("--all", action="store_true", help="show every operation and kind of failure, even if they fill more than one screen")
    add("--verbose", action="store_true", help="show every case that fails, and the unclaimed ones")
    text = "run a clip of torch on this many ranks, each a process on gloo: clip(parameters, max_norm), with DTensors"
    add("--ranks", type=int, choices=(2, 4, 8), metavar="N", help=f"{text}; N is 2, 4 or 8")
    add("--limit", action="store_true", help="the targets are limits that follow a run: check their eight properties")
    add("--list", action="store_true", help="list the cases and what they need; run none")


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, not {value!r}")
    return seconds


def main(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.limit:
        return _limits(options)
    require("conformance", "conformance", "jinja2", "jsonschema", "numpy", "rich")
    # imported here, after the check for missing packages
    from gradclip.conformance.cases import plan
    from gradclip.conformance.declared import check_cases, check_targets, read_xfails
    from gradclip.conformance.like import as_native

    _check_ranks(options)
    specifications = _specifications(options)
    made = plan(options.dialects, options.select, options.vectors, options.ranks or 0)
    if guessed := _guessed(options, specifications, made):
        options.dialects = guessed
        made = plan(guessed, options.select, options.vectors)
    made = as_native(made, options.like)
    for file in (options.json, options.html):
        if file and file != "-" and not Path(file).parent.is_dir():  # before the run, not after it
            raise ArgumentError("There is no folder for the report.", repr(file))
    xfails = read_xfails(options.xfails) if options.xfails is not None else {}
    if not made.broken:
        check_cases(xfails, made.known)
    if options.list and made.cases:
        _list(made)
        return 0
    if not made.cases and not made.broken:
        raise ArgumentError("No case matches.", "", "gradclip conformance --list shows all.")
    report = _report(options, made, specifications)
    _write(report, made, options)
    own = {name.removesuffix(f" ({one.text})") for name in report.targets for one in specifications}  # of two with one name
    check_targets(xfails, [*report.targets, *sorted(own - report.targets.keys())])
    return 0 if report.conformant else 1


def _limits(options: argparse.Namespace) -> int:
    """Check the targets as limits that follow a run; this needs only Python."""
    from gradclip.conformance.following import PROPERTIES, check_limit, load_limit

    if not options.targets:
        raise ArgumentError("--limit needs a limit.", "", "gradclip conformance mymodule:my_limit --limit")
    found = {text: check_limit(load_limit(text)) for text in options.targets}
    for text, wrong in found.items():
        print(f"{text}: keeps {sum(not what for what in wrong.values())} of {len(PROPERTIES)} properties")
        for name, what in wrong.items():
            print(f"  ({name}) {'ok  ' if not what else 'FAIL'}  {PROPERTIES[name]}" + (f": {what}" if what else ""))
    return int(any(any(wrong.values()) for wrong in found.values()))


def _specifications(options: argparse.Namespace) -> list[Specification]:
    """The targets: those that are named, or gradclip."""
    from gradclip.conformance.specification import Specification, installed

    named = [Specification.parse(text) for text in dict.fromkeys(options.targets)]
    for one in named:
        one.check()
    return named or ([Specification.parse("gradclip:torch")] if options.ranks else installed())


def _guessed(options: argparse.Namespace, specifications: list[Specification], made: Plan) -> list[str] | None:
    """The operation of the functions among the targets, if no option names one: it says which; None if nothing is guessed."""
    from gradclip.conformance.guessed import guess

    own = [one for one in specifications if one.kind == "object"]
    if not own or options.ranks:
        return None
    operations = dict.fromkeys(case.operation for case in made.cases)
    if options.dialects and len(operations) < 2:
        return None
    found = {one.text: guess(one.name, one.on, operations) for one in own}
    named = {text: operation for text, operation in found.items() if operation}
    if len(set(named.values())) > 1:
        received = ", ".join(f"{text}: {operation}" for text, operation in named.items())
        raise ArgumentError("The targets are different clips.", received, "test each by itself, or name one --dialect for all.")
    for text, operation in named.items():
        print(
            f"{text} is tested as {operation}, which its names fit best; --dialect names another.", file=sys.stderr, flush=True
        )
    return list(named.values())[:1] or None


def _report(options: argparse.Namespace, made: Plan, specifications: list[Specification]) -> Report:
    """Run the cases on the targets."""
    from gradclip.conformance.processes import Task, run_all
    from gradclip.conformance.progress import Shown
    from gradclip.conformance.ranks.runs import run_on_ranks

    names = ("dialects", "select", "vectors", "xfails", "arrays", "takes", "in_place", "like")
    given = {name: getattr(options, name) for name in names}
    task = Task(made, **given, seconds=options.seconds or (20.0 if options.ranks else 60.0))
    if not options.ranks:
        _announce(specifications, made)
    with Shown() as shown:
        if options.ranks:
            return run_on_ranks(specifications, task, options.ranks, shown)
        return run_all(specifications, task, shown)


def _announce(specifications: list[Specification], made: Plan) -> None:
    """Say how long a long run takes, before it begins, and how to choose a shorter one."""
    from gradclip.conformance.processes import expected_seconds

    seconds = expected_seconds(specifications, made)
    if seconds < _LONG:
        return
    targets = [one.text for one in specifications]
    lines = [
        f"{counted(len(made.cases), 'case')} on each of {counted(len(targets), 'target')} ({', '.join(targets)}): "
        f"about {counted(math.ceil(seconds / 60), 'minute')}.",
        f"For fewer, name a target (gradclip conformance {targets[0]}), a dialect (--dialect torch), or cases "
        '(--select "torch.*/E*"). Ctrl-C ends it.',
    ]
    wrapped = (line for text in lines for line in textwrap.wrap(text, width(_NARROWEST)))
    print("\n".join(wrapped), file=sys.stderr, flush=True)


def _check_ranks(options: argparse.Namespace) -> None:
    """Refuse the options that say nothing of a clip on several ranks."""
    for name in ("like", "arrays", "takes", "in_place"):
        if options.ranks and getattr(options, name) is not None:
            hint = "a clip on several ranks takes parameters of torch."
            raise ArgumentError(f"--{name} does not go with --ranks.", f"--{name} {getattr(options, name)}", hint)


def _list(made: Plan) -> None:
    for case in made.cases:
        print(f"{case.id}  ({', '.join(case.needs)})")


def _write(report: Report, made: Plan, options: argparse.Namespace) -> None:
    from gradclip.conformance.report import as_json, lay_out, printed, write_html, write_json

    seen = lay_out(report, made.files.values())
    if options.html:
        write_html(seen, options.html)
    if options.json == "-":
        sys.stdout.write(as_json(report))
        return
    if options.json:
        write_json(report, options.json)
    printed.show(seen, sys.stdout, options.verbose, options.all)
