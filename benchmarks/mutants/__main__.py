"""The command: it finds trainings that clip, plants one mistake in each copy, and counts what ``gradclip lint`` finds."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.mutants.found import counted, table
from benchmarks.mutants.planted import Bounds, planted, trainings

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    chosen = _parser().parse_args(arguments)
    if missing := [folder for folder in chosen.folders if not folder.is_dir()]:
        print(f"There is no such folder.\nReceived: {', '.join(map(str, missing))}", file=sys.stderr)
        return 2
    files = trainings(chosen.folders)
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.keep or Path(temporary)
        made = planted(files, folder, Bounds(chosen.limit, chosen.each, chosen.files), _say)
        if not made:
            print("No training was found in which a mistake could be planted.", file=sys.stderr)
            return 2
        _say(f"lint reads {len(made)} mutants and {len(files)} unchanged files\n")
        outcome = counted(made, list(files), folder)
    print(table(outcome, chosen.missed))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutants",
        description="Plant one mistake in each copy of a training that clips; count what gradclip lint finds. Nothing runs.",
    )
    add = parser.add_argument
    add("folders", metavar="FOLDER", nargs="+", type=Path, help="a folder of projects: clones of repositories")
    add("--limit", type=int, default=4000, help="the most mutants (default: %(default)s)")
    add("--each", type=int, default=150, help="the most mutants of each kind (default: %(default)s)")
    add("--files", type=int, default=10, help="mutants of at most so many files of each project (default: %(default)s)")
    add("--keep", metavar="FOLDER", type=Path, help="write the mutants to this folder, and leave them there")
    add("--missed", action="store_true", help="name each mutant that was not found, and each alarm on a right file")
    return parser


def _say(line: str) -> None:
    print(f"\r{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
