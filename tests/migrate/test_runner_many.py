"""Many files: results come in order, several files run at a time, and no file stops the rest."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import TIME_LIMIT, environment
from migrate import stand_in

import gradclip
from gradclip.source import runner
from gradclip.source.files import Found
from gradclip.source.model import Options
from gradclip.source.runner import FileResult, Request

REQUEST = Request(Options())


def made(folder: Path, count: int, **contents: str) -> list[Found]:
    """Make this many files; ``f7="..."`` gives the seventh another content."""
    found = []
    for i in range(count):
        path = folder / f"f{i}.py"
        path.write_text(contents.get(path.stem, f"x = {i}\nold\n"), encoding="utf-8")
        found.append(Found(str(path)))
    return found


def results(found: list[Found], jobs: int) -> list[FileResult]:
    return list(runner.run(found, REQUEST, jobs, stand_in.migrate_source))


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_results_are_in_the_order_of_the_files(jobs: int, tmp_path: Path) -> None:
    found = made(tmp_path, 60, f3="print 'unreadable'", f5="mistake", f40="print 'unreadable'")
    found.insert(10, Found("pipe.py", error="a named pipe, not a file"))
    found.insert(50, Found("venv", skipped="a virtual environment"))
    got = results(found, jobs)
    assert [result.path for result in got] == [one.path for one in found]
    assert [Path(result.path).name for result in got if result.error] == ["f3.py", "f5.py", "pipe.py", "f40.py"]
    assert sum(result.changed for result in got) == 57
    assert got[50].skipped == "a virtual environment"


def test_several_processes_find_what_one_finds(tmp_path: Path) -> None:
    found = made(tmp_path, 40, f7="by_hand\nold\n", f30="leave")
    assert results(found, 3) == results(found, 1)


def test_several_processes_write(tmp_path: Path) -> None:
    found = made(tmp_path, 40)
    done = list(runner.run(found, Request(Options(), write=True), 2, stand_in.migrate_source))
    assert all(result.written for result in done)
    assert {Path(one.path).read_text()[-4:] for one in found} == {"new\n"}


def test_few_files_start_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "Workers", None)
    assert len(results(made(tmp_path, 24), 8)) == 24


def test_a_file_that_kills_its_process_does_not_stop_the_rest(tmp_path: Path) -> None:
    got = results(made(tmp_path, 50, f20="die", f21="die"), 2)
    assert [Path(result.path).name for result in got if result.error] == ["f20.py", "f21.py"]
    assert got[20].error == "the process that read it was killed: too large, or nested too deeply"
    assert sum(result.changed for result in got) == 48


@pytest.mark.parametrize(("jobs", "ahead"), [(1, 25), (2, 2 * 4 * 8 + 1)])
def test_the_files_are_read_no_further_ahead_than_there_is_work(jobs: int, ahead: int, tmp_path: Path) -> None:
    (file,) = made(tmp_path, 1)
    taken = 0

    def endless() -> Iterator[Found]:
        nonlocal taken
        while True:
            taken += 1
            yield file

    outcome = runner.run(endless(), REQUEST, jobs, stand_in.migrate_source)
    for given in range(1, 200):
        assert next(outcome).changed
        assert taken <= given + ahead
    outcome.close()  # type: ignore[attr-defined]


def test_the_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    (file,) = made(tmp_path, 1, f0="x = 1\nold\n" * 4)

    def peak(count: int) -> int:
        tracemalloc.start()
        for result in runner.run((file for _ in range(count)), REQUEST, 1, stand_in.migrate_source):
            assert result.changed
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(30)
    assert peak(400) < 1.2 * peak(30)


def test_the_number_of_processes_is_that_of_the_cores() -> None:
    assert runner.cores() >= 1


SLOW = """
import os, time

def migrate_source(source, options):
    os.write(2, f"{os.getpid()}\\n".encode())  # whole lines: print may write the end of a line by itself
    time.sleep(3600)
"""
SCRIPT = """
import sys
from gradclip.source import runner
from gradclip.source.files import Found
from gradclip.source.model import Options
from slow import migrate_source

for _ in runner.run(map(Found, sys.argv[1:]), runner.Request(Options()), 2, migrate_source):
    pass
"""


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_the_processes_end_with_their_parent(end: str, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")  # a process can load no function of the script
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    names = [one.path for one in made(tmp_path, 40)]
    command = [sys.executable, str(tmp_path / "script.py"), *names]
    paths = [str(tmp_path), str(Path(gradclip.__file__).parents[1])]  # the tested sources, wherever the script is
    here = environment(PYTHONPATH=os.pathsep.join(paths))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=here) as process:
        assert process.stderr is not None
        both = {int(process.stderr.readline()) for _ in range(2)}
        assert len(both - {process.pid}) == 2
        getattr(process, end)()
        process.communicate(timeout=TIME_LIMIT)  # the pipe closes when the last process with it has ended
    assert process.returncode
