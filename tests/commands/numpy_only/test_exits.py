"""How a command ends: wrong usage, an interrupt at any moment, a reader that has left; and what it says before a long run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from launched import TIME_LIMIT
from refusals import refused

from gradclip.commands import backends, cli
from gradclip.conformance import children
from gradclip.conformance.cases import plan


@pytest.mark.parametrize("command", cli._COMMANDS)
def test_the_usage_of_an_unknown_option_is_that_of_its_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([command, "--nosuch"])
    usage, said = capsys.readouterr().err.rsplit(f"gradclip {command}: error: ", 1)
    assert usage.startswith(f"usage: gradclip {command} ")
    assert "--nosuch" in said or "required" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["doctor", ""], "There is no such script.\nReceived: SCRIPT=''"),
        (["doctor", "-m", "nosuch"], "There is no such module to run.\nReceived: -m 'nosuch': No module named nosuch"),
        (["doctor", "-m", "json"], "There is no such module to run.\nReceived: -m 'json': No module named json.__main__"),
        (["doctor", "-m", ""], "There is no such module to run."),
        (["choose", ".", "--key", "norm"], "The folder has no files of TensorBoard's events."),
        (["choose", "numbers", "--key", "norm"], "This log has numbers only, and no keys.\nReceived: --key 'norm'"),
        (["choose", "monitor", "--key", "norm"], "This log is the state of a monitor, which has no keys."),
    ],
)
def test_what_is_not_there_is_one_error(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers").write_text("1.0\n2.0\n")
    (tmp_path / "monitor").write_text('{"version": 1, "sections": []}')
    refused(words, said, capsys)


def test_a_module_that_misses_another_fails_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_mine.py").write_text("import no_such_package\n")
    assert cli.main(["doctor", "-m", "of_mine"]) == 2
    said = capsys.readouterr()
    assert said.err.count('File "') == 1, "the traceback begins in the module"
    assert "The script failed (ModuleNotFoundError: No module named 'no_such_package')" in said.out


@pytest.mark.parametrize("log", ["runs", "runs/norms.jsonl"])
def test_a_log_without_permission(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tests may run as root, whom the system refuses nothing."""

    def refuse(name: Any, *arguments: Any, **keywords: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(name))

    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "norms.jsonl").write_text("1.0\n")
    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr("gradclip.commands.choose_logs.open", refuse, raising=False)
    refused(["choose", log], f"The log cannot be read.\nReceived: '{log}': Permission denied\n", capsys)


# ---- interrupts ----------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from gradclip.commands.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "status"),
    [("gradclip.limits", -signal.SIGINT), ("gradclip.commands.explain", -signal.SIGINT), ("gradclip.explain", 130)],
)
def test_an_interrupt_in_any_import_is_no_traceback(module: str, status: int, tmp_path: Path) -> None:
    script = tmp_path / "gradclip"  # the name makes it the command
    script.write_text(INTERRUPTED.format(module=module))
    command = [sys.executable, str(script), "explain", "G"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIME_LIMIT)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_has_its_status(number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "survey", lambda report: signal.raise_signal(number))
    before = signal.getsignal(number)
    assert cli.main(["backends"]) == status
    assert signal.getsignal(number) == before


def test_an_interrupt_ends_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sleeper.py").write_text("import time\nprint('{}', flush=True)\ntime.sleep(3600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    main, started = threading.main_thread().ident, []

    def interrupt(message: object) -> None:
        started.append(message)
        if len(started) == 1:  # one Ctrl-C
            signal.pthread_kill(main or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        children.two_at_a_time(lambda item: children.run("sleeper", [], interrupt), range(4))
    assert len(started) <= 2, "no more are started"
    assert not children._running
    assert children.run("json.nosuch", [], interrupt), "later ones run"


def test_a_reader_that_has_left_is_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "gradclip", "explain", "G"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=TIME_LIMIT)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


# ---- a long run ----------------------------------------------------------------------------------------------------------


def test_a_long_run_says_so_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gradclip.conformance.processes.run_all", interrupted)
    assert cli.main(["conformance"]) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert re.match(rf"{len(plan().cases):,} cases on each of \d targets? \(gradclip:numpy.*\): about \d+ minutes?\. ", said)
    assert "name a target (gradclip conformance gradclip:numpy), a dialect (--dialect torch), or cases (--select " in said
    assert cli.main(["conformance", "gradclip:numpy", "--dialect", "keras.clipnorm", "--select", "E1"]) == 130
    assert capsys.readouterr().err == ""
