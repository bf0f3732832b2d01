"""The command: its arguments. It ends with 0; 1 if a floor is missed; 2 for wrong usage; 130 when interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, readme, report
from benchmarks.floors import FLOORS, QUICK_FLOORS, missed, unmeasured
from benchmarks.outcome import Outcome, replaced
from benchmarks.run import FRAMEWORKS, run
from benchmarks.worker import Options

__all__ = ["main"]


class UsageError(Exception):
    """Invalid arguments."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: what follows ``python -m benchmarks``; this process's own if None.

    Returns:
        The exit code. Arguments that argparse refuses raise ``SystemExit(2)``.
    """
    chosen = _parser().parse_args(arguments)
    try:
        _check(chosen)
        if chosen.load:
            return _shown(chosen, Outcome.read(chosen.load))
        outcome, whole = _measured(chosen)
        if chosen.quick and chosen.check and whole:
            _again(chosen, outcome)
        status = _shown(chosen, outcome)
        return status if whole else 130
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Time gradclip and the natives in turn, and both against the machine."
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small gradients and few rounds: some four minutes for everything")
    add("--only", metavar="PATTERN", action="append", default=[], help="only cases of this name: 'torch/*/gpt2/*' (repeatable)")
    add("--frameworks", metavar="A,B", type=_names, default=list(FRAMEWORKS), help=f"of {','.join(FRAMEWORKS)} (default: all)")
    add("--accuracy", action="store_true", help="only the errors of norms (a run without --only has them too)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where the gradients are (default: %(default)s)")
    add("--seconds", type=_positive, help="how long to time each case (default: 1; 0.1 with --quick)")
    add("--rounds", type=_positive, help="the most rounds for each case (default: 400)")
    add("--patience", type=_positive, default=900.0, help="seconds after which a case is given up (default: %(default)g)")
    add("--check", action="store_true", help="end with 1 if a floor is missed")
    add("--json", metavar="FILE", type=Path, help="write everything that was measured")
    add("--readme", action="store_true", help="write the tables into benchmarks/README.md")
    add(
        "--load",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="measure nothing: read what --json wrote (repeatable)",
    )
    return parser


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in FRAMEWORKS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(FRAMEWORKS)}")
    return names


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return value


def _check(chosen: argparse.Namespace) -> None:
    """Refuse now what would fail after an hour."""
    if chosen.json is not None and not chosen.json.absolute().parent.is_dir():
        raise UsageError(f"There is no folder to write to.\nReceived: {chosen.json}")
    for path in chosen.load:
        if not path.is_file():
            raise UsageError(f"There is no such file.\nReceived: --load {path}")


def _options(chosen: argparse.Namespace) -> Options:
    seconds = chosen.seconds or (0.1 if chosen.quick else 1.0)
    options = Options(device=chosen.device, only=chosen.only, quick=chosen.quick, seconds=seconds, patience=chosen.patience)
    return replace(options, rounds=max(1, int(chosen.rounds))) if chosen.rounds else options


def _measured(chosen: argparse.Namespace) -> tuple[Outcome, bool]:
    """The outcome, and whether the run was complete."""
    options = _options(chosen)
    parts = [] if chosen.accuracy else [options]
    if chosen.accuracy or not chosen.only:
        parts.append(replace(options, accuracy=True))
    outcome = Outcome(machine.describe())

    def save() -> None:
        if chosen.json is not None:
            outcome.write(chosen.json)

    signal.signal(signal.SIGTERM, _interrupt)  # timeout(1) sends it: an hour's work is not lost then either
    try:
        run(chosen.frameworks, parts, _say, outcome, save)
    except KeyboardInterrupt:
        print("Interrupted: this is what was measured so far.", file=sys.stderr)
        save()
        return outcome, False
    explained = any("failure" in known or "skipped" in known for known in outcome.frameworks.values())
    if chosen.only and not (chosen.accuracy or outcome.cases or explained):
        raise UsageError(f"No case has such a name.\nReceived: --only {' --only '.join(chosen.only)}")
    return outcome, True


def _again(chosen: argparse.Namespace, outcome: Outcome) -> None:
    """Time the cases below a floor again: during a quick run, something else may have used the machine."""
    keys = {case["key"] for case in outcome.compared}
    names = [miss.name for miss in missed(outcome, QUICK_FLOORS) if miss.name in keys]
    if names:
        second = Outcome(outcome.machine)
        run(chosen.frameworks, [replace(_options(chosen), only=names)], _say, second, lambda: None)
        outcome.cases = replaced(outcome.cases, second.cases, ("key",))
        if chosen.json is not None:
            outcome.write(chosen.json)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _shown(chosen: argparse.Namespace, outcome: Outcome) -> int:
    print(report.text(outcome))
    if chosen.readme:
        readme.README.write_text(readme.written(readme.README.read_text(), outcome))
    if not chosen.check:
        return 0
    floors = QUICK_FLOORS if chosen.quick else FLOORS
    misses, without = missed(outcome, floors), len(unmeasured(outcome, floors))
    print(f"\n{report.verdict(misses, len(floors), without)}")
    return 1 if misses or without == len(floors) else 0


if __name__ == "__main__":
    sys.exit(main())
