"""``python tools/vectors``: write the vectors and the expected failures of natives, record a native, or check all of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vectors import files, limits, ranks, xfails
from vectors.operations import OPERATIONS
from vectors.record import NATIVES, Recording, differences, record

Json = dict[str, Any]
_RANKS = "ranks"  # the file of the vectors on several ranks, beside those of the operations


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 1 if --check finds a difference or a recording is not certain."""
    parser = argparse.ArgumentParser(prog="python tools/vectors", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; say what would change, and exit 1 if anything would"
    )
    parser.add_argument(
        "--record",
        metavar="NATIVE",
        choices=NATIVES,
        help=f"run a native: {', '.join(NATIVES)}",
    )
    parser.add_argument("--report", metavar="FILE", type=Path, help="the report of that native, to use instead of running it")
    options = parser.parse_args(arguments)
    made = {operation.name: files.merged(operation) for operation in OPERATIONS}
    checks = {native: xfails.checks_of(native, made) for operation in OPERATIONS for native in operation.recorders}
    made[_RANKS], checks[ranks.NATIVE] = ranks.merged(), set()
    problems: list[str] = []
    if options.record:
        if not options.check:
            _write(made, checks)  # the native runs on the written files
        recording = record(options.record, _tolerances(made), options.report)
        problems += [f"not certain: {text}" for text in recording.unsure]
        if options.check:
            problems += _against(recording, made, checks)
        else:
            _take(recording, made, checks)
    if options.check:
        problems += _changed(made, checks)
    else:
        _write(made, checks)
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{sum(len(file['vectors']) for file in made.values())} vectors, {len(problems)} problems")
    return 1 if problems else 0


def _tolerances(made: dict[str, Json]) -> dict[str, int]:
    return {f"{file['operation']}/{vector['id']}": vector["ulp"] for file in made.values() for vector in file["vectors"]}


def _take(recording: Recording, made: dict[str, Json], checks: dict[str, set[str]]) -> None:
    """Put a recording into the files."""
    for file in made.values():
        for vector in file["vectors"]:
            case = f"{file['operation']}/{vector['id']}"
            if recording.name in vector.get("native", {}) or recording.name in _recorders(file):
                native = {**vector.get("native", {}), recording.name: recording.vectors[case]}
                vector["native"] = {name: native[name] for name in _recorders(file) if name in native}
        if recording.name in _recorders(file):
            versions = {**file["recorded_with"], recording.name: dict(recording.versions)}
            file["recorded_with"] = {name: versions[name] for name in _recorders(file) if name in versions}
    checks[recording.name] = recording.checks


def _against(recording: Recording, made: dict[str, Json], checks: dict[str, set[str]]) -> Iterator[str]:
    """The differences of a recording from the one in the files."""
    for file in made.values():
        if recording.name not in _recorders(file):
            continue
        for vector in file["vectors"]:
            case = f"{file['operation']}/{vector['id']}"
            old = vector.get("native", {}).get(recording.name, "not recorded")
            yield from (f"{case}: {difference}" for difference in differences(old, recording.vectors[case], recording.name))
    for case in sorted(checks[recording.name] ^ recording.checks):
        yield f"{case}: {recording.name} fails it {'now' if case in recording.checks else 'no longer'}"


def _recorders(file: Json) -> tuple[str, ...]:
    if "mesh" in file["vectors"][0]:
        return (ranks.NATIVE,)
    return next(operation.recorders for operation in OPERATIONS if operation.name == file["operation"])


def _texts(made: dict[str, Json], checks: dict[str, set[str]]) -> Iterator[tuple[Any, str]]:
    """Every file, with its new content."""
    for operation in OPERATIONS:
        yield files.path_of(operation), files.text(files.sourced(made[operation.name]))
    yield ranks.path(), files.text(files.sourced(made[_RANKS]))
    yield from limits.texts()
    expected: dict[Any, dict[str, dict[str, str]]] = {}
    for native, failing in checks.items():
        cases = xfails.vector_reasons(native, {name: file for name, file in made.items() if native in _recorders(file)}) | {
            case: xfails.check_reason(native, case) for case in failing
        }
        expected.setdefault(xfails.path_of(native), {})[xfails.pattern_of(native)] = cases
    for path, content in expected.items():
        yield path, xfails.text(content)


def _write(made: dict[str, Json], checks: dict[str, set[str]]) -> None:
    for path, content in _texts(made, checks):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def _changed(made: dict[str, Json], checks: dict[str, set[str]]) -> Iterator[str]:
    for path, content in _texts(made, checks):
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            yield f"{path.name} is not what python tools/vectors writes"
