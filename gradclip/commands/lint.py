"""The command ``gradclip lint``: mistakes in code that clips gradients. It imports the rest when it runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib import util

from gradclip import __version__
from gradclip.commands.common import require
from gradclip.commands.migrate import MOST_JOBS, MigrateError, jobs

__all__ = ["DESCRIPTION", "EPILOG", "add_options", "main"]

DESCRIPTION = """\
Find broken gradient clipping in Python files and notebooks, whichever framework's functions they use: clipping
before backward() or after step(), clipping gradients that are still scaled, clipping an exhausted iterator.
`gradclip explain GM107` prints a rule's page, with a wrong and a right program.
"""
EPILOG = """\
exit status:
  0  no mistakes
  1  mistakes
  2  a file could not be read, or wrong usage

examples:
  gradclip lint src
  gradclip lint src --select GM10 --format github

A comment exempts its line:           # gradclip: ignore[GM107]
pyproject.toml has the same options:  [tool.gradclip.lint] with select, ignore and exclude, lists of strings
"""

_PLAIN = """\
Without LibCST, only mistakes in the order of a training step are found, and .gitignore files are not read.
For mistakes in single calls, and clips written by hand: python -m pip install 'gradclip[migrate]'
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.usage = "gradclip lint [options] [PATH ...]"
    command.add_argument("paths", metavar="PATH", nargs="*", default=["."], help="a file or a folder (default: this folder)")
    command.add_argument("--select", metavar="CODES", help="check only these rules: GM101,GM107, or a prefix: GM10")
    command.add_argument("--ignore", metavar="CODES", help="do not check these rules")
    command.add_argument("--exclude", metavar="GLOB", action="append", help="skip files that match, as in a .gitignore")
    command.add_argument(
        "--format", choices=("text", "json", "sarif", "github"), default="text", help="the format of the output (default: text)"
    )
    command.add_argument("-j", dest="jobs", metavar="N", type=jobs, help="processes (default: one for each core)")


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.exclude:
        require("lint --exclude", "migrate", "pathspec")
    from gradclip import lint  # imported here: other commands need none of it
    from gradclip.source import files, runner

    first = arguments.paths[0]
    try:
        said = lint.configuration(first if os.path.isdir(first) else os.path.dirname(first))
        chosen = _chosen(arguments, said)
        found = files.discover(arguments.paths, said.get("exclude", []) + (arguments.exclude or []))
    except lint.ConfigurationError as error:
        raise MigrateError(f"{error}.") from None
    except files.PatternError as error:
        raise MigrateError("The pattern of --exclude is invalid.", str(error), "it is a pattern as in a .gitignore.") from None
    python = (one for one in found if not one.path.endswith(files.SETTINGS))
    alarms: list[lint.Alarm] = []
    failed: list[runner.FileResult] = []
    count = clips = lost = 0
    results = lint.run(python, min(arguments.jobs or runner.cores(), MOST_JOBS))
    with _waiting() as step, contextlib.closing(results):
        for result in results:
            step()
            count += not result.skipped
            if result.error:
                failed.append(result)
            alarms += lint.alarms(result, chosen)
            clips += lint.clips(result)
            lost += lint.unfollowed(result)
    lint.report(alarms, failed, count, clips, arguments.format, sys.stdout, __version__, lost)
    for one in failed:
        sys.stderr.write(f"{files.harmless(one.path)}: ERROR: {one.error}\n")
    if not lint.HAS_LIBCST:
        sys.stderr.write(_PLAIN)
    return 2 if failed else int(bool(alarms))


@contextlib.contextmanager
def _waiting() -> Iterator[Callable[[], None]]:
    """What to call for each file: it shows progress in a slow run, if rich is installed."""
    if util.find_spec("rich") is None:
        yield lambda: None
        return
    from gradclip.migrate import output

    with output.Waiting(sys.stderr) as waiting:
        yield waiting.step


def _chosen(arguments: argparse.Namespace, said: dict[str, list[str]]) -> list[str]:
    """The selected codes; the command line overrides the file."""
    from gradclip.source.codes import RULES

    select = _codes(arguments.select) if arguments.select is not None else said.get("select", [])
    ignore = _codes(arguments.ignore) if arguments.ignore is not None else said.get("ignore", [])
    for prefix in (*select, *ignore):
        if not any(code.startswith(prefix) for code in RULES):
            raise MigrateError(f"No rule begins with {prefix[:60]}.", prefix[:60], f"the rules are {', '.join(RULES)}.")
    chosen = [code for code in RULES if not select or code.startswith(tuple(select))]
    return [code for code in chosen if not (ignore and code.startswith(tuple(ignore)))]


def _codes(value: str) -> list[str]:
    return [code.strip().upper() for code in value.split(",") if code.strip()]
