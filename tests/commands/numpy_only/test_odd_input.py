"""Odd settings, logs and arguments: each command says one clear error and ends with 2, without a traceback."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launched import TIME_LIMIT
from refusals import refused

import gradclip
from gradclip.commands.cli import main
from gradclip.dialects import torch as of_torch
from gradclip.steps.advice.choice import order_bounds

NINES = "9" * 5000


# ---- pyproject.toml -----------------------------------------------------------------------------------------------------

TABLE = "[tool.gradclip.lint]\n"
SETTINGS: dict[str, tuple[str | bytes, str]] = {
    "a number for tool": ("tool = 1", "tool is not a table"),
    "a list for tool": ("[[tool]]\nx = 1", "tool is not a table"),
    "a number for gradclip": ("[tool]\ngradclip = 3", "gradclip is not a table"),
    "text for lint": ("[tool.gradclip]\nlint = 'x'", "lint is not a table"),
    "a list for lint": ("[[tool.gradclip.lint]]\nselect = []", "lint is not a table"),
    "a huge number": (f"x = {NINES}", "cannot be read: Exceeds the limit"),
    "deep lists": ("x = " + "[" * 50_000, "nested too deeply"),
    "deep tables": ("x = " + "{a=" * 5000, "nested too deeply"),
    "a long key": (".".join("a" * 200_000) + " = 1", "nested too deeply"),
    "a long table": (f"[{'.'.join('a' * 200_000)}]", "nested too deeply"),
    "Latin-1": (b"x = '\xe9'", "cannot be read: 'utf-8' codec"),
    "UTF-16": ("x = 1".encode("utf-16"), "cannot be read: 'utf-8' codec"),
    "NUL": (b"\0", "cannot be read: "),
    "too large": (b"#" * (2 << 20), "larger than 1 MiB"),
    "no date": ("x = 9999-99-99", "cannot be read: "),
    "a number": (f"{TABLE}select = 1", "select of [tool.gradclip.lint] is not a list of strings"),
    "text": (f"{TABLE}exclude = 'x'", "exclude of [tool.gradclip.lint] is not a list of strings"),
    "numbers": (f"{TABLE}ignore = [1]", "ignore of [tool.gradclip.lint] is not a list of strings"),
    "lists": (f"{TABLE}select = [[]]", "select of [tool.gradclip.lint] is not a list of strings"),
    "a table": (f"{TABLE}select = {{}}", "select of [tool.gradclip.lint] is not a list of strings"),
    "a date": (f"{TABLE}select = 2020-01-01", "select of [tool.gradclip.lint] is not a list of strings"),
    "an unknown rule": (f"{TABLE}select = ['{'X' * 100_000}']", "No rule begins with XXX"),
    "no pattern": (f"{TABLE}exclude = ['!']", "The pattern of --exclude is invalid"),
    "an unknown key": (f"{TABLE}{'k' * 100_000} = []", "has no key kkk"),
    "a key for the terminal": (f'{TABLE}"\\u001b[2J" = []', r"has no key \x1b[2J"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a file to read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("x = 1\n")
    return tmp_path


@pytest.mark.parametrize("name", SETTINGS)
def test_odd_settings(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, said = SETTINGS[name]
    (here / "pyproject.toml").write_bytes(content.encode() if isinstance(content, str) else content)
    refused(["lint", "train.py"], said, capsys)
    assert main(["migrate", "train.py"]) == 0, "it has no settings there"


@pytest.mark.parametrize("kind", ["folder", "link to nothing", "link to itself", "pipe", "endless", "unreadable"])
def test_settings_that_are_no_file(
    kind: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = here / "pyproject.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "unreadable":
        path.write_text(TABLE)

        def refuse(*arguments: Any, **keywords: Any) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("gradclip.lint.settings.open", refuse, raising=False)
    else:
        path.symlink_to({"link to nothing": "nowhere", "link to itself": "pyproject.toml", "endless": "/dev/zero"}[kind])
    refused(["lint", "."], "Permission denied" if kind == "unreadable" else "it is not a file", capsys)


def test_settings_of_every_right_kind_are_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "pyproject.toml").write_bytes(b"[tool.gradclip.lint]\r\nselect = ['GM1']\r\nignore = []\r\nexclude = ['x/']\r\n")
    assert main(["lint", "."]) == 0
    assert "no clip found in 1 file" in capsys.readouterr().out


# ---- choose -------------------------------------------------------------------------------------------------------------

LOGS: dict[str, tuple[str | bytes, str]] = {
    "deep lists": ("[" * 100_000 + "]" * 100_000, "The log is nested too deeply."),
    "deep objects": ('{"norm":' * 100_000, "The log is nested too deeply."),
    "a deep line": ("1.0\n" + "[" * 100_000, "The log is nested too deeply."),
    "digits": ("9" * 100_000, "A number of the log does not fit in a float."),
    "a line of digits": ("1.0\n2.0\n" + "9" * 100_000, "A number of the log does not fit in a float."),
    "a list of digits": (f"[1.0, 1{'0' * 400}]", "A number of the log does not fit in a float."),
    "an exponent": ("1.0\n1e400\n", "A number of the log does not fit in a float."),
    "digits in a table": ("norm\n" + "9" * 400 + "\n", "A number of the log does not fit in a float."),
    "a long field": ("norm\n" + "a" * 200_000 + "\n", "The log is neither JSON nor CSV."),
    "no text": (bytes(range(256)), "The log is not text in UTF-8."),
    "a checkpoint": (b"PK\x03\x04\x80" + bytes(100), "The log is not text in UTF-8."),
    "an object": ('{"norm": {"a": 1}}', "A norm must be a number."),
    "a long text": (json.dumps({"norm": "a" * 100_000}), "A norm must be a number."),
    "long keys": (json.dumps({"norm" + "a" * 100_000: 1, "norm2": 2}), "The log has several norms."),
    "an optimizer": (json.dumps({"state": {"0": {"step": 1}}, "param_groups": [{"lr": 1}]}), "The log has no norms."),
    "another version": (json.dumps({"version": 2, "sections": []}), "is of another version"),
    "no version": (json.dumps({"version": None, "sections": []}), "This is not the state of a monitor: "),
    "other sections": (
        json.dumps({"version": 1, "every": 1, "is_list": False, "sections": [1]}),
        "This is not the state of a monitor: ",
    ),
    "text for sections": (
        json.dumps({"version": 1, "every": 1, "is_list": False, "sections": "abc"}),
        "This is not the state of a monitor: ",
    ),
    "a section of another kind": (
        json.dumps({"version": 1, "every": 1, "is_list": False, "sections": [{"exp_avg": [1.0]}]}),
        "This is not the state of a monitor: ",
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_odd_logs(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, said = LOGS[name]
    (here / "log").write_bytes(content.encode() if isinstance(content, str) else content)
    refused(["choose", "log"], said, capsys)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (b"\x2a\x02\x08\x01\x2a\x80", "not a TensorBoard event file, or it is damaged"),
        (b"\x28\x01", "not a TensorBoard event file, or it is damaged"),
        (b"\x2a\x07\x0a\x05\x15\x00\x00\x80\x3f", "not a TensorBoard event file, or it is damaged"),  # no tag
    ],
)
def test_odd_events(event: bytes, said: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "events.out.tfevents.1").write_bytes(struct.pack("<Q", len(event)) + bytes(4) + event + bytes(4))
    refused(["choose", "events.out.tfevents.1"], said, capsys)
    refused(["choose", "."], said, capsys)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--parameters", NINES], "invalid int value"),
        (["--norm-type", "1", "--parameters", "-1"], "must be positive"),
        (["--limit", NINES], "A limit must be a positive number."),
        (["--limit", "nan"], "must be a positive number"),
        (["--key", "\udcff"], "no such key"),
        (["--picture", "x.unknown"], "The picture cannot be written."),
        (["--picture", ""], "The picture cannot be written."),
        (["--picture", "nowhere/x.png"], "No such file or directory"),
    ],
)
def test_odd_options_of_choose(options: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "log").write_text('{"norm": 1.0}\n{"norm": 2.0}\n' * 10)
    refused(["choose", "log", *options], said, capsys)


@pytest.mark.parametrize("norm", [5e-324, 1e-310, 1.7e308])
def test_the_smallest_and_the_largest_norms_have_a_limit(norm: float) -> None:
    choice = gradclip.choose([norm] * 200)
    assert choice.recommended.limit > norm
    assert choice.recommended.clipped_fraction == 0.0


@pytest.mark.parametrize(("wanted", "bounds"), [(1e-300, (1.0, np.inf)), (1e300, (0.1**0.5, 1.0))])
def test_the_bounds_of_extreme_orders(wanted: float, bounds: tuple[float, float]) -> None:
    assert order_bounds(1.0, wanted, 2.0, 10) == pytest.approx(bounds)
    assert order_bounds(1.0, 1.0, 2.0, 10**400) == (1.0, np.inf)
    assert order_bounds(1.0, np.inf, 2.0, 10**400) == (0.0, 1.0)


def monitored() -> dict[str, Any]:
    monitor = gradclip.Monitor()
    for i in range(20):
        gradients = [np.array([1.0 + i % 5, 2.0])]
        monitor.update(gradclip.clip(gradients, of_torch.clip_grad_norm(2.5)))
    return monitor.state_dict()


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return every place in nested dicts and lists."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:8]) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*place, key)
        yield from places(one, (*place, key))


@pytest.mark.parametrize("wrong", [None, "x", -1, 1e308, [[1]]])
def test_a_state_with_anything_wrong_in_it_is_an_error_or_has_a_limit(wrong: Any) -> None:
    state = monitored()
    for place in places(state):
        other = copy.deepcopy(state)
        inner: Any = other
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = wrong
        monitor = gradclip.Monitor(every=3)
        before = monitor.state_dict()
        try:
            monitor.load_state_dict(other)
        except ValueError:
            assert monitor.state_dict() == before, "a failed call changes nothing"
        with contextlib.suppress(ValueError):
            assert gradclip.choose(other).recommended.limit > 0


@pytest.mark.parametrize("how", ["/dev/stdin", "-", "pipe", "empty", "closed"])
def test_standard_input_and_pipes_are_logs(how: str, here: Path) -> None:
    (here / "norms.jsonl").write_text("\n".join(str(1 + i % 7) for i in range(200)))
    script = str(Path(sys.executable).with_name("gradclip"))
    commands = {
        "/dev/stdin": f"cat norms.jsonl | {sys.executable} {script} choose /dev/stdin",
        "-": f"{sys.executable} {script} choose - <norms.jsonl",
        "pipe": f"{sys.executable} {script} choose <(cat norms.jsonl)",
        "empty": f"{sys.executable} {script} choose - </dev/null",
        "closed": f"{sys.executable} {script} choose - <&-",
    }
    done = subprocess.run(["bash", "-c", commands[how]], cwd=here, capture_output=True, text=True, timeout=TIME_LIMIT)
    if how in ("empty", "closed"):
        assert (done.returncode, done.stdout) == (2, "")
        assert ("The log is empty." if how == "empty" else "Bad file descriptor") in done.stderr
        assert "Traceback" not in done.stderr
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("200 norms\n")


# ---- any command --------------------------------------------------------------------------------------------------------

ODD = ["a\0b", "\ud800", f"{NINES}:{NINES}"]
WORDS = [
    ["lint", "--exclude", "{}", "--select", "{}", "train.py"],
    ["lint", "--select", "{}", "train.py"],
    ["migrate", "--select", "{}", "train.py"],
    ["migrate", "--from", "{}", "train.py"],
    ["migrate", "-j", "{}", "train.py"],
    ["choose", "{}"],
    ["choose", "log", "--limit", "{}"],
    ["explain", "{}"],
    ["backends", "{}"],
    ["demo", "--steps", "{}"],
    ["demo", "--frameworks", "{}"],
    ["conformance", "gradclip:{}"],
    ["conformance", "--dialect", "{}", "--list"],
    ["conformance", "--select", "{}", "--list"],
    ["conformance", "--seconds", "{}"],
    ["conformance", "--xfails", "{}", "--list"],
    ["conformance", "--like", "{}", "--list"],
    ["conformance", "--limit", "{}"],
    ["{}"],
]


def test_odd_names_of_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("lint", "migrate"):
        refused([command, "a\0b"], "An argument has a character that no text has.", capsys)
        refused([command, "\ud800"], "An argument has a character that no text has.", capsys)
        assert main([command, NINES]) == 2  # a file that cannot be read: the report says it
        assert "file name too long" in "".join(capsys.readouterr())


@pytest.mark.parametrize("odd", ODD, ids=["NUL", "surrogate", "digits"])
@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_odd_arguments(words: list[str], odd: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "log").write_text("1.0\n2.0\n")
    refused([word.format(odd) for word in words], "", capsys)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        *(("..:x", "There is no such limit."), (":", "There is no such limit."), ("math:pi", "There is no such limit.")),
        ("no_such_module:x", "There is no module no_such_module."),
        ("math:no_such_name", "math has no function no_such_name; it has acos"),
    ],
)
def test_odd_limits_of_conformance(limit: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(["conformance", "--limit", limit], said, capsys)


def test_many_processes_are_a_number_that_the_system_allows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "-j", "99999999", "train.py"]) == 0
    capsys.readouterr()
    refused(["lint", "-j", NINES, "train.py"], "must be a whole number from 1", capsys)


def test_what_the_terminal_lacks_is_written_as_escapes(here: Path) -> None:
    script = [sys.executable, str(Path(sys.executable).with_name("gradclip"))]
    named = os.fsdecode(b"\xff.py")
    (here / named).write_text("import torch\ntorch.nn.utils.clip_grad_norm_(p, 1.0)\n")
    done = subprocess.run([*script, "migrate", "--check", named], cwd=here, capture_output=True, text=True, timeout=TIME_LIMIT)
    assert (done.returncode, done.stderr) == (1, "")
    assert r"\udcff.py:2:1: GT101" in done.stdout


@pytest.mark.parametrize("words", [["lint"], ["explain", "GT101"]], ids=" ".join)
def test_a_folder_that_is_gone(words: list[str], tmp_path: Path) -> None:
    script = [sys.executable, str(Path(sys.executable).with_name("gradclip")), *words]
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["bash", "-c", 'rmdir "$PWD"; exec "$@"', "-", *script]
    done = subprocess.run(command, cwd=gone, capture_output=True, text=True, timeout=TIME_LIMIT)
    assert done.returncode == (0 if words[0] == "explain" else 2)
    assert "Traceback" not in done.stderr
