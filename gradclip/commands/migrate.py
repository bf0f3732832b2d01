"""The command ``gradclip migrate``: its options. It imports the rest when it runs."""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from gradclip.commands.common import require
from gradclip.core.errors import GradclipError, shown
from gradclip.source.model import FRAMEWORKS, Options

if TYPE_CHECKING:
    from gradclip.migrate.output import Report
    from gradclip.source.runner import Request

__all__ = ["DESCRIPTION", "EPILOG", "MigrateError", "add_options", "jobs", "main"]

_TARGETS = ("gradclip", "torch", "tensorflow", "paddle", "jax")
_STDIN = "<stdin>"
MOST_JOBS = 256  #: a typing error starts no thousands of processes

DESCRIPTION = """\
Find every gradient-clipping call in Python files and notebooks, show how gradclip would rewrite it, and list
what is left to do by hand. Nothing is written without --write. A rewrite never changes what training does,
unless you pass --allow-semantic-change.
"""
EPILOG = """\
exit status:
  0  nothing to do
  1  something to do, or done: calls rewritten, or left to do by hand
  2  a file failed, or wrong usage
  130, 143  interrupted, by Ctrl-C or SIGTERM: each file is the old one or the new one

examples:
  gradclip migrate src                           show what would change
  gradclip migrate src --write                   change it
  gradclip migrate --from torch --to torch src   only torch's old names, to its current ones
  gradclip migrate --check --json src            for a script
  gradclip migrate - --write <old >new           from standard input to standard output
"""


class MigrateError(GradclipError):
    """The migration cannot start."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.usage = "gradclip migrate [options] PATH [PATH ...]"
    command.add_argument("paths", metavar="PATH", nargs="+", help="a file or a folder; - is standard input")
    _add_what(command.add_argument_group("which calls"))
    _add_how(command.add_argument_group("what to do"))


def _add_what(group: argparse._ArgumentGroup) -> None:
    frameworks = f"rewrite only the calls of these: {', '.join(FRAMEWORKS)} (default: all)"
    group.add_argument("--to", choices=_TARGETS, default="gradclip", help="whose functions to call (default: %(default)s)")
    group.add_argument("--from", dest="sources", metavar="A,B", type=_frameworks, default=frozenset(), help=frameworks)
    group.add_argument(
        "--select", metavar="CODES", type=_codes, default=frozenset(), help="rewrite only these codes: GT101, or a prefix: GK"
    )
    group.add_argument(
        "--ignore",
        metavar="CODES",
        type=_codes,
        default=frozenset(),
        help="leave these codes alone; for a trap (GM1...): rewrite the call anyway",
    )
    group.add_argument(
        "--exclude", metavar="GLOB", action="append", default=[], help="skip files that match, as in a .gitignore"
    )
    group.add_argument(
        "--strict", action="store_true", help="with --to: leave calls that have no equivalent in that framework, and name them"
    )
    group.add_argument("--norms", action="store_true", help="also rewrite calls that only measure a norm")
    group.add_argument(
        "--allow-semantic-change", action="store_true", help="also rewrite a call if that changes training; a comment says how"
    )


def _add_how(group: argparse._ArgumentGroup) -> None:
    mode = group.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true", help="change the files")
    mode.add_argument("--check", action="store_true", help="name the calls that would change, without a diff")
    group.add_argument("--annotate", action="store_true", help="add a comment wherever something is left to do by hand")
    group.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    group.add_argument("--verbose", action="store_true", help="also name the calls that stay, and why")
    group.add_argument("-j", dest="jobs", metavar="N", type=jobs, default=None, help="processes (default: one for each core)")


def _frameworks(value: str) -> frozenset[str]:
    names = _words(value)
    if unknown := sorted(names - set(FRAMEWORKS)):
        raise argparse.ArgumentTypeError(f"choose from {', '.join(FRAMEWORKS)}, not {', '.join(unknown)[:60]}")
    return names


def _codes(value: str) -> frozenset[str]:
    return frozenset(code.upper() for code in _words(value))


def _words(value: str) -> frozenset[str]:
    return frozenset(filter(None, (word.strip() for word in value.split(","))))


def jobs(value: str) -> int:
    if not (value.isdecimal() and len(value) < 9 and int(value)):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, not {shown(value)}")
    return int(value)


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("migrate", "migrate", "libcst", "pathspec", "rich")
    from gradclip.source import runner  # imported here, after the check for missing packages

    _check_codes(arguments)
    options = Options(
        to=arguments.to,
        sources=arguments.sources,
        select=arguments.select,
        ignore=arguments.ignore,
        annotate=arguments.annotate,
        allow_semantic_change=arguments.allow_semantic_change,
        norms=arguments.norms,
        strict=arguments.strict,
    )
    request = runner.Request(
        options, write=arguments.write, diff=not (arguments.check or (arguments.write and not arguments.json))
    )
    return (_standard_input if "-" in arguments.paths else _files)(arguments, request)


def _check_codes(arguments: argparse.Namespace) -> None:
    from gradclip.natives import BY_CODE
    from gradclip.source.codes import CODES

    for option in ("select", "ignore"):
        given = sorted(getattr(arguments, option))
        for prefix in given:
            if not any(code.startswith(prefix) for code in (*BY_CODE, *CODES)):
                hint = "`gradclip explain G` lists them all."
                raise MigrateError(f"No code begins with {prefix[:60]}.", f"--{option} {','.join(given)[:60]}", hint)


def _files(arguments: argparse.Namespace, request: Request) -> int:
    from gradclip.migrate import codemod, output
    from gradclip.source import files, project, runner

    try:
        request = replace(request, about=project.survey(files.discover(arguments.paths, arguments.exclude)))
        found = files.discover(arguments.paths, arguments.exclude)
    except files.PatternError as error:
        raise MigrateError("The pattern of --exclude is invalid.", str(error), "it is a pattern as in a .gitignore.") from None
    report = _report(arguments, sys.stdout)
    processes = min(arguments.jobs or runner.cores(), MOST_JOBS)
    results = runner.run(found, request, processes, codemod.migrate_source, report.totals.add)
    try:
        with output.Waiting(sys.stderr) as waiting, contextlib.closing(results):
            for result in results:
                waiting.step(shown=report.shows(result))
                report.show(result)
    except KeyboardInterrupt:
        sys.stdout.flush()
        count = report.totals.written
        sys.stderr.write(f"Interrupted: {report.totals.files:,} files read, {count:,} changed; the others are as they were.\n")
        raise
    report.end()
    return report.totals.exit_code


def _standard_input(arguments: argparse.Namespace, request: Request) -> int:
    """With ``--write`` the source goes to standard output, changed or not, and all messages to standard error."""
    from gradclip.migrate import codemod
    from gradclip.source import disk, runner

    if len(arguments.paths) > 1:
        raise MigrateError("Standard input is one source.", " ".join(arguments.paths), "give - alone.")
    raw = sys.stdin.buffer.read()
    report = _report(arguments, sys.stderr if request.write else sys.stdout)
    try:
        result, new = runner.migrate_bytes(_STDIN, disk.decode(raw), request, codemod.migrate_source)
    except disk.FileError as error:
        result, new = runner.FileResult(_STDIN, error=str(error)), raw
    report.file(result)
    report.end()
    if request.write:
        sys.stdout.buffer.write(new)
    return report.totals.exit_code


def _report(arguments: argparse.Namespace, stream: TextIO) -> Report:
    from gradclip.migrate import output

    if arguments.json:
        return output.JsonReport(stream)
    return output.TextReport(stream, sys.stderr, sites=arguments.check, verbose=arguments.verbose, write=arguments.write)
