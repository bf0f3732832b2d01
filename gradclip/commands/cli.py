"""The command ``gradclip``: its overview, and the start of each command, whose module it imports on demand.

Exit status: 0; 1 if something failed or was found; 2 for wrong usage; 130 if interrupted; 141 if nobody reads its output.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib import util
from typing import Any

from gradclip import __version__
from gradclip.commands.help import CommandParser, HelpFormatter
from gradclip.core import isolation, spelling
from gradclip.core.errors import GradclipError, message
from gradclip.source import interrupts

__all__ = ["main"]

#: command -> its description and an example. The module of this name has the rest: ``add_options`` and ``main``
_COMMANDS = {
    "demo": ("show what clipping is for, on every installed framework", "gradclip demo"),
    "backends": ("list the installed frameworks and what works on each", "gradclip backends"),
    "explain": ("explain what a call computes, and list its equivalents", 'gradclip explain "tf.clip_by_norm(g, 5.0)"'),
    "choose": ("pick a limit from the norms of a run", "gradclip choose norms.jsonl"),
    "lint": ("find broken clipping in source code", "gradclip lint src"),
    "doctor": ("find broken clipping in a training run", "gradclip doctor train.py --steps 20"),
    "migrate": ("rewrite clipping calls to use gradclip", "gradclip migrate src"),
    "conformance": ("test your clip against its specification", "gradclip conformance train.py:my_clip"),
}
_DESCRIPTION = "Find broken gradient clipping, and reproduce any framework's clipping on any framework's tensors."
_UNREAD = 141  #: as a shell says it of SIGPIPE: a script must not take it for a finding
_EPILOG = """\
gradclip COMMAND --help shows the options of a command.

exit status:
  0    everything is fine
  1    something failed, or lint or migrate found something
  2    wrong usage, or a file that cannot be read
  130  interrupted (143 by SIGTERM)
  141  the reader of its output has left, as head does

Only demo, backends, doctor and conformance run code: lint, migrate, choose and explain never run what they read.
To run gradclip as a module, use python -P -m gradclip: without -P, Python imports from the current folder.

NO_COLOR=1 turns colours off. Colours and progress bars appear in terminals only.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Without arguments it shows the overview.

    Args:
        arguments: the words after ``gradclip`` on the command line; this process's own if None.

    Returns:
        The exit code: 0; 1 if something failed; for ``migrate`` 1 if there is something to do, and 2 if a file failed.
        Wrong usage raises ``SystemExit(2)``.
    """
    try:
        try:
            return _main(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flush the rest to nowhere
        return _UNREAD
    except OSError as error:  # the current folder is gone, or the output has no room
        print(error, file=sys.stderr)
        return 2


def _main(arguments: Sequence[str] | None) -> int:
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
    if "run" not in options:
        parser.error("a COMMAND is missing")
    options.is_process = arguments is None
    try:
        if arguments is None:  # this process is the command
            _take_interrupts()
            isolation.leave(tuple(_read(options)))
        with interrupts.ending() if options.ends_by_signal else contextlib.nullcontext():
            return int(options.run(options))
    except GradclipError as error:  # the command cannot start
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        return int(getattr(error, "code", 130))


def _take_interrupts() -> None:
    """Let a Ctrl-C raise again: until now it ended the process, since it came in the middle of an import."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gradclip {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", prog="gradclip", help=argparse.SUPPRESS, parser_class=CommandParser)
    for name in _COMMANDS:
        command = commands.add_parser(name, formatter_class=HelpFormatter)
        if name == wanted:
            module: Any = importlib.import_module(f"gradclip.commands.{name}")
            command.description, command.epilog = module.DESCRIPTION, module.EPILOG
            command.set_defaults(run=module.main, ends_by_signal=True)
            module.add_options(command)
    return parser


def _overview() -> str:
    """Two lines for each command: its description and an example."""
    lines = [f"  {name:<13}{what}\n{'':15}{example}" for name, (what, example) in _COMMANDS.items()]
    return "\n".join(["commands, each with an example:", *lines])
