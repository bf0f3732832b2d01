"""The command ``gradclip``. It ends with 0; with 1 if something failed, or is found to do; with 2 for wrong usage."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

from gradclip import __version__
from gradclip.commands import choose, conformance, demo, explain, inventory, lint, migrate

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: what follows ``gradclip`` on the command line; this process's own if None.

    Returns:
        The exit code: 0; 1 if something failed; ``migrate`` has 1 where there is something to do, and 2 where a file failed.
        Wrong usage raises ``SystemExit(2)``.
    """
    options = _parser().parse_args(arguments)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except (demo.UsageError, migrate.MigrateError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to flush goes nowhere
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gradclip", description="Gradient clipping: every framework's semantics, on every framework's tensors."
    )
    parser.add_argument("--version", action="version", version=f"gradclip {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    what = "which backends there are, and what each supports"
    command = commands.add_parser(
        "backends", help=what, description=f"Show {what}; each framework is tried in a process of its own."
    )
    command.set_defaults(run=_backends)
    _add_json(command)

    what = "train a small classifier with every installed framework, under three dialects"
    command = commands.add_parser(
        "demo", help=what, description=f"Real digits: {what}, and check that all frameworks clip to the same numbers."
    )
    command.add_argument(
        "--steps", type=_steps, default=demo.STEPS, help="training steps for each dialect (default: %(default)s)"
    )
    command.add_argument(
        "--frameworks", metavar="A,B", help="only these (default: all that are installed); NumPy is always run"
    )
    command.set_defaults(run=_demo)
    _add_json(command)

    migrate.add_migrate(commands)
    lint.add_lint(commands)
    explain.add_explain(commands)
    conformance.add_conformance(commands)
    choose.add_choose(commands)
    return parser


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def _steps(value: str) -> int:
    steps = int(value) if value.isdecimal() else 0
    if not 1 <= steps <= demo.MOST_STEPS:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {demo.MOST_STEPS}, not {value!r}")
    return steps


def _backends(options: argparse.Namespace) -> int:
    def report(name: str) -> None:
        sys.stderr.write(f"asking {name} ...\n")  # in one piece: two threads report

    entries, has_loops = inventory.survey(report), inventory.has_compiled_loops()
    if options.json:
        _print_json({"backends": entries, "compiled_loops": has_loops})
    else:
        print(inventory.text(entries), inventory.loops_text(has_loops), sep="\n\n")
    return int(any(entry["error"] for entry in entries))


def _demo(options: argparse.Namespace) -> int:
    names = None if options.frameworks is None else [name.strip() for name in options.frameworks.split(",")]
    demo.require()
    from gradclip.commands import report  # here: it needs rich, which nothing else does

    with report.progress() as progress:
        outcome = demo.run(options.steps, names, progress)
    if options.json:
        _print_json(outcome.as_json())
    else:
        report.show(outcome)
    return 0 if outcome.good else 1


def _print_json(value: Any) -> None:
    print(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    """The same with the numbers that JSON lacks as their names: "nan", "inf", "-inf"."""
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(child) for child in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
