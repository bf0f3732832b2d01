"""Interrupts of ``gradclip migrate --write``: each file is the old one or the new one, and nothing else is left."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from launched import TIME_LIMIT, environment
from migrate import stand_in

import gradclip
from gradclip.commands import cli
from gradclip.migrate import codemod
from gradclip.migrate.codemod import migrate_source
from gradclip.source import disk, runner, workers
from gradclip.source.files import Found
from gradclip.source.interrupts import signals_wait
from gradclip.source.model import Migrated, Options
from gradclip.source.runner import Request

OLD = "import torch\n\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
NEW = "import gradclip\n\ngradclip.clip_grad_norm_(model.parameters(), 1.0)\n"
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture(autouse=True)
def usual_signals() -> Iterator[None]:
    """Handle signals as in a terminal: processes that a shell starts in the background ignore some."""
    before = {number: signal.getsignal(number) for number in CODES}
    for number in CODES:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def notebook(source: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": source}]})


def made(folder: Path, many: int, longer: str = "") -> None:
    """Make this many sources, a third of them notebooks; their names end in ``longer``."""
    for i in range(many):
        name, content = (f"f{i}{longer}.ipynb", notebook(OLD)) if i % 3 == 0 else (f"f{i}{longer}.py", OLD)
        (folder / name).write_text(content, encoding="utf-8")


#: each file has a line of 430 characters: unread lines fill the pipe, so the run cannot end before the signal comes
FOLDER, LONGER = "d" * 200, "x" * 230
MANY = 200
assert (MANY - MANY // 8) * len(FOLDER + LONGER) > (1 << 16) + (1 << 13), "the pipe, and the reader's buffer"


def started(folder: Path, jobs: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "gradclip", "migrate", FOLDER, "--write", "-j", str(jobs)]
    # each line is written when its file is: else the first lines come when the run has ended
    here = environment(PYTHONPATH=str(Path(gradclip.__file__).parents[1]), PYTHONUNBUFFERED="1")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=here, text=True, process_group=0, **pipes)  # type: ignore[call-overload,no-any-return]


def check(folder: Path, many: int) -> int:
    """Check that each file is whole and nothing lies beside them; return the number of new files."""
    files = list(folder.iterdir())
    assert len(files) == many, [file.name for file in files if file.suffix not in (".py", ".ipynb")]
    new = 0
    for file in files:
        text = file.read_text(encoding="utf-8")
        wanted = (notebook(OLD), notebook(NEW)) if file.suffix == ".ipynb" else (OLD, NEW)
        assert text in wanted
        new += text == wanted[1]
    return new


def interrupt(folder: Path, many: int, jobs: int, how: signal.Signals, chance: random.Random) -> None:
    """Interrupt one run, after a random number of files."""
    (files := folder / FOLDER).mkdir()
    made(files, many, LONGER)
    after = chance.randrange(many // 8)
    with started(folder, jobs) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after + 1)]
        time.sleep(chance.random() / 100)
        os.killpg(process.pid, how)  # as a terminal does
        if chance.random() < 0.3:
            os.killpg(process.pid, how)  # impatience changes nothing
        out, err = process.communicate(timeout=TIME_LIMIT)
    new = check(files, many)
    assert process.returncode == CODES[how], (err, out)
    assert "Traceback" not in err
    told = re.search(r"Interrupted: [\d,]+ files read, (\d+) changed; the others are as they were.\n", err)
    assert told is not None, err
    assert int(told[1]) == new >= len(lines)
    again = "".join([*lines, out]).splitlines()
    assert len(set(again)) == len(again), "no file is named twice"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no process groups to signal")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_processes_that_are_interrupted_leave_whole_files_and_nothing_else(how: signal.Signals, tmp_path: Path) -> None:
    interrupt(tmp_path, MANY, 2, how, random.Random(how))


def test_runs_that_are_interrupted_at_random_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moments(tmp_path, 20, random.Random(0), capsys)


@pytest.mark.slow("an interrupt at a rare moment")
def test_runs_that_are_interrupted_at_many_random_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moments(tmp_path, 200, random.Random(1), capsys)


def moments(folder: Path, many: int, chance: random.Random, capsys: pytest.CaptureFixture[str]) -> None:
    """Interrupt runs in this process, each at the start of a random function."""
    count = 0
    at: dict[int, signal.Signals] = {}

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"
        if event == "call" and (how := at.pop(count, None)) is not None:
            signal.raise_signal(how)

    def run() -> int:
        nonlocal count
        made(folder, 6)
        count = 0
        sys.setprofile(profile)
        try:
            return cli.main(["migrate", "--write", str(folder), "-j", "1"])
        finally:
            sys.setprofile(None)

    late: list[int] = []
    before = {one: signal.signal(one, lambda number, frame: late.append(number)) for one in CODES}
    ended = 0
    try:
        assert [run(), run()] == [1, 1]  # the second imports nothing
        calls = count
        for number in range(many):
            how = list(CODES)[number % len(CODES)]
            at[chance.randrange(calls)] = how
            capsys.readouterr()
            code, (out, err) = run(), capsys.readouterr()
            new = check(folder, 6)
            assert code == CODES[how] or (code, new) == (1, 6), (out, err)
            assert code == 1 or not new or f" {new} changed; " in err
            ended += code == CODES[how]
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert ended > many * 0.8, "almost all of the run is within reach of a signal"


@pytest.mark.slow("an interrupt at a rare moment")
@pytest.mark.parametrize("number", range(20))
def test_many_runs_that_are_interrupted(number: int, tmp_path: Path) -> None:
    for i in range(10):
        (inner := tmp_path / str(i)).mkdir()
        interrupt(inner, MANY, 1 + i % 2, list(CODES)[i % 3], random.Random(10 * number + i))


@pytest.mark.slow("a folder that is larger than any buffer")
def test_an_interrupt_among_ten_thousand_files(tmp_path: Path) -> None:
    interrupt(tmp_path, 10_000, 2, signal.SIGINT, random.Random(0))


# ---- each moment of a write ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["mkstemp", "fsync", "replace", "unlink", "fchmod", "stat"])
def test_a_signal_at_any_step_of_a_write_waits_for_the_whole_file(
    where: str, how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = disk.tempfile if where == "mkstemp" else disk.os
    original = getattr(module, where)
    seen = []

    def signalled(*arguments: object, **keywords: object) -> object:
        done = original(*arguments, **keywords)
        if any(str(tmp_path) in str(one) for one in (*arguments, *keywords.values())) or where in ("fsync", "fchmod"):
            seen.append(where)
            signal.raise_signal(how)
        return done

    made(tmp_path, 3)
    before = [signal.getsignal(one) for one in CODES]
    monkeypatch.setattr(module, where, signalled)
    code = cli.main(["migrate", "--write", str(tmp_path), "-j", "1"])
    monkeypatch.undo()
    assert [signal.getsignal(one) for one in CODES] == before
    new = check(tmp_path, 3)
    if where == "unlink":
        assert (seen, code, new) == ([], 1, 3), "a write that succeeds has nothing to remove"
    else:
        assert seen
        assert code == CODES[how]
        assert not new or f" {new} changed; " in capsys.readouterr().err
        assert (new == 0) == (where == "stat"), "a signal before the first file"


@pytest.mark.parametrize("last", [False, True])
def test_a_signal_that_a_library_loses_ends_the_run(last: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LibCST's own ``finally`` puts another error in its place; in the last file nothing comes after it."""
    read = []

    def migrate(source: str, options: Options) -> Migrated:
        read.append(source)
        if len(read) == (3 if last else 2):
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                raise KeyError("a node")
        return migrate_source(source, options)

    made(tmp_path, 3)
    monkeypatch.setattr(codemod, "migrate_source", migrate)
    assert cli.main(["migrate", "--write", str(tmp_path), "-j", "1"]) == 143
    assert check(tmp_path, 3) == len(read) - 1 == (2 if last else 1)
    monkeypatch.undo()
    assert cli.main(["migrate", "--write", str(tmp_path), "-j", "1"]) == 1, "the next run is not interrupted"


def test_ctrl_c_raises_keyboard_interrupt_in_a_program_that_runs_the_migration(tmp_path: Path) -> None:
    def migrate(source: str, options: Options) -> object:
        signal.raise_signal(signal.SIGINT)
        return stand_in.migrate_source(source, options)

    path = tmp_path / "x.py"
    path.write_text("old\n", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        list(runner.run([Found(str(path))], Request(Options(), write=True), 1, migrate))  # type: ignore[arg-type]
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old\n"]


def test_a_signal_within_a_hold_has_its_effect_at_the_end() -> None:
    steps = []

    def step() -> None:
        with signals_wait():
            signal.raise_signal(signal.SIGINT)
            steps.append("after")

    with pytest.raises(KeyboardInterrupt):
        step()
    assert steps == ["after"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_wait():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


# ---- a worker that is killed ---------------------------------------------------------------------------------------------


def test_the_report_is_true_though_a_process_is_killed(tmp_path: Path) -> None:
    found = []
    for i in range(30):
        path = tmp_path / f"f{i}.py"
        path.write_text(
            f"once = '{tmp_path / 'mark'}'\nold\n" if i == 11 else "always\nold\n" if i == 20 else "old\n", encoding="utf-8"
        )
        found.append(Found(str(path)))
    done = list(runner.run(found, Request(Options(), write=True), 2, stand_in.killed))
    assert [result.path for result in done] == [one.path for one in found]
    for result in done:
        new = Path(result.path).read_text(encoding="utf-8").endswith("new\n")
        assert (result.written, bool(result.error)) == (new, result.path.endswith("f20.py"))
        assert new is not result.path.endswith("f20.py")


def test_a_file_that_has_killed_a_process_is_never_read_by_the_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that reads the file dies, and no other can be started."""
    started = workers._Process

    def once() -> workers._Process:
        monkeypatch.setattr(workers, "_Process", none)
        return started()

    def none() -> workers._Process:
        raise workers.Unstarted("no more processes")

    monkeypatch.setattr(workers, "_Process", once)
    pool = workers.Workers(partial(stand_in.killed, options=Options()), 1)
    try:
        with pytest.raises(workers.Killed):
            pool.submit("always").result()
        with pytest.raises(workers.Unstarted, match="no more processes"):
            pool.submit("old").result()
    finally:
        pool.close()


def test_where_no_process_can_load_the_function_this_one_reads_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process says why, and is not asked; no other is started."""
    module = types.ModuleType("only_in_this_process")
    exec("def migrate_source(source, options):\n    return read(source, options)\n", vars(module))
    vars(module)["read"] = stand_in.migrate_source
    monkeypatch.setitem(sys.modules, module.__name__, module)
    count = []
    started = workers._Process
    monkeypatch.setattr(workers, "_Process", lambda: count.append(0) or started())
    pool = workers.Workers(module.migrate_source, 1)
    try:
        for _ in range(3):
            said = "the function cannot be loaded: ModuleNotFoundError: .*only_in_this_process"
            with pytest.raises(workers.Unstarted, match=said):
                pool.submit("old").result()
    finally:
        pool.close()
    assert len(count) == 1
    found = []
    for i in range(30):
        (path := tmp_path / f"f{i}.py").write_text("old\n", encoding="utf-8")
        found.append(Found(str(path)))
    done = list(runner.run(found, Request(Options()), 2, module.migrate_source))
    assert all(result.changed for result in done)
