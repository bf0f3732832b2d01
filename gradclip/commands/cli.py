"""The command ``gradclip``: its overview, and the start of each command, whose module it imports on demand.

Exit status: 0; 1 if something failed or was found; 2 for wrong usage; 130 if interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import util
from typing import Any

from gradclip import __version__, isolation, spelling
from gradclip.errors import GradclipError, message, shown

__all__ = ["main"]

#: command -> its description, an example, its module, and the function that adds it
_COMMANDS = {
    "demo": ("show why to clip, on every installed framework", "gradclip demo", __name__, "add_demo"),
    "backends": ("list the frameworks that gradclip finds", "gradclip backends", __name__, "add_backends"),
    "explain": (
        "say what a call computes, and its equivalents",
        'gradclip explain "tf.clip_by_norm(g, 5.0)"',
        "gradclip.commands.explain",
        "add_explain",
    ),
    "choose": (
        "choose a limit from the norms of a run",
        "gradclip choose norms.jsonl",
        "gradclip.commands.choose",
        "add_choose",
    ),
    "lint": ("find mistakes in code that clips", "gradclip lint src", "gradclip.commands.lint", "add_lint"),
    "doctor": (
        "find mistakes in a training, while it runs",
        "gradclip doctor train.py --steps 20",
        "gradclip.commands.doctor",
        "add_doctor",
    ),
    "migrate": (
        "rewrite clipping calls",
        "gradclip migrate src",
        "gradclip.commands.migrate",
        "add_migrate",
    ),
    "conformance": (
        "test a clip against its specification",
        "gradclip conformance train.py:my_clip",
        "gradclip.commands.conformance",
        "add_conformance",
    ),
}
_DESCRIPTION = "Gradient clipping: every framework's semantics, on every framework's tensors."
_EPILOG = """\
gradclip COMMAND --help shows the options of a command.

exit status:
  0    all is well
  1    something failed, or lint or migrate found something
  2    wrong usage, or a file that cannot be read
  130  interrupted (143 by SIGTERM)

Only demo, backends, doctor and conformance run code: lint, migrate, choose and explain run nothing that they read.
To start them as a module, write python -P -m gradclip: without -P, Python imports from the current folder.

NO_COLOR=1 turns colours off. Colours and moving bars are for terminals only.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Without arguments it shows the overview.

    Args:
        arguments: the words after ``gradclip`` on the command line; this process's own if None.

    Returns:
        The exit code: 0; 1 if something failed; for ``migrate`` 1 if there is something to do, and 2 if a file failed.
        Wrong usage raises ``SystemExit(2)``.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names and sources may have characters that the terminal lacks
            stream.reconfigure(errors="backslashreplace")
    if not all(map(_is_text, given)):
        print(message("An argument has a character that no text has.", ascii(given)[:200]), file=sys.stderr)
        return 2
    _complete()
    parser = _parser(given[0] if given else "")
    if not given:
        parser.print_help()
        return 0
    if given[0][:1] not in ("", "-") and given[0] not in _COMMANDS:
        hint = spelling.did_you_mean(spelling.nearest(given[0], _COMMANDS)) or f"the commands are {', '.join(_COMMANDS)}."
        parser.exit(2, f"{message('There is no such command.', given[0], hint)}\n")
    options = parser.parse_args(given)
    if arguments is None:  # this process is the command
        isolation.leave(tuple(_read(options)))
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except GradclipError as error:  # the command cannot start
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        return int(getattr(error, "code", 130))
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flush the rest to nowhere
        return 1
    except OSError as error:  # the current folder is gone, or the output has no room
        print(error, file=sys.stderr)
        return 2


def _complete() -> None:
    """Answer a shell that completes a command line, and end. The package argcomplete does it; docs/install.md says how."""
    if "_ARGCOMPLETE" in os.environ and util.find_spec("argcomplete") is not None:
        import argcomplete

        _, *words = os.environ.get("COMP_LINE", "").split()
        argcomplete.autocomplete(_parser(words[0] if words else ""))


def _is_text(argument: str) -> bool:
    try:
        return b"\0" not in os.fsencode(argument)
    except UnicodeEncodeError:
        return False


def _read(options: argparse.Namespace) -> Iterator[str]:
    """The folders that a command reads."""
    for path in (*getattr(options, "paths", ()), getattr(options, "log", ".")):
        yield path if os.path.isdir(path) else os.path.dirname(path)


def _parser(wanted: str) -> argparse.ArgumentParser:
    """The parser of the command line, with the options of one command."""
    parser = argparse.ArgumentParser(
        prog="gradclip",
        usage="gradclip COMMAND [options]",
        description=f"{_DESCRIPTION}\n\n{_overview()}",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gradclip {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, prog="gradclip", help=argparse.SUPPRESS)
    for name, (_, _, module, function) in _COMMANDS.items():
        if name == wanted:
            getattr(importlib.import_module(module), function)(commands)
        else:
            commands.add_parser(name)
    return parser


def _overview() -> str:
    """Two lines for each command: its description and an example."""
    lines = [f"  {name:<13}{what}\n{'':15}{example}" for name, (what, example, *_) in _COMMANDS.items()]
    return "\n".join(["commands, each with an example:", *lines])


def add_backends(commands: Any) -> None:
    """Add ``gradclip backends`` to the commands."""
    description = "List the backends and what each supports. Each framework is tried in a process of its own."
    epilog = "exit status: 0; 1 if an installed framework does not work; 2 for wrong usage"
    command = commands.add_parser("backends", description=description, epilog=epilog)
    command.set_defaults(run=_backends)
    _add_json(command)


def add_demo(commands: Any) -> None:
    """Add ``gradclip demo`` to the commands."""
    from gradclip.commands import demo

    description = (
        "Show a training that explodes without a clip. Then train a small classifier of digits with every installed "
        "framework, under three dialects, and check that all frameworks clip to the same numbers."
    )
    epilog = "exit status: 0 if all agree; 1 if not; 2 for wrong usage"
    command = commands.add_parser("demo", description=description, epilog=epilog)
    text = "training steps for each dialect (default: %(default)s)"
    command.add_argument("--steps", type=_steps, default=demo.STEPS, help=text)
    text = "train only with these; NumPy always runs (default: all that are installed)"
    command.add_argument("--frameworks", metavar="A,B", help=text)
    command.set_defaults(run=_demo)
    _add_json(command)


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def _steps(value: str) -> int:
    from gradclip.commands import demo

    steps = int(value) if value.isdecimal() and len(value) < 9 else 0
    if not 1 <= steps <= demo.MOST_STEPS:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {demo.MOST_STEPS}, not {shown(value)}")
    return steps


def _backends(options: argparse.Namespace) -> int:
    from gradclip.commands import inventory

    def report(name: str) -> None:
        sys.stderr.write(f"asking {name} ...\n")  # in one write: two threads report

    entries, slots, has_loops = inventory.survey(report), inventory.slots(), inventory.has_compiled_loops()
    if options.json:
        _print_json({"backends": entries, "slots": slots, "compiled_loops": has_loops})
    else:
        blocks = (inventory.text(entries), inventory.slots_text(slots), inventory.loops_text(has_loops))
        print(*filter(None, blocks), sep="\n\n")
    return int(any(entry["error"] for entry in entries))


def _demo(options: argparse.Namespace) -> int:
    from gradclip.commands import demo

    names = None if options.frameworks is None else [name.strip() for name in options.frameworks.split(",")]
    demo.require()
    from gradclip.commands import report  # after require: it needs rich

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
    """A copy with "nan", "inf" and "-inf" for the numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(child) for child in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
