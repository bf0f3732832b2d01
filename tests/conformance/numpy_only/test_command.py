"""``gradclip conformance``: its targets, each in its own process, its files, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from importlib import util
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from launched import TIME_LIMIT

from gradclip.commands.cli import main
from gradclip.conformance import report
from gradclip.conformance.declared import shipped_xfails
from gradclip.conformance.specification import ARRAYS, Specification, installed
from gradclip.conformance.target import OPERATIONS
from gradclip.core.errors import ArgumentError

SOME = ("--select", "*/several", "--select", "*/both-sides", "--dialect", "optax.clip")

CLIPS = """
    import ctypes, os, signal, sys, time
    import numpy as np

    def good(grads, max_delta):
        if not max_delta >= 0:
            raise ValueError("a negative limit")
        return [np.clip(g, -max_delta, max_delta) for g in grads]

    def bad(grads, max_delta):
        return [g / 2 for g in grads]

    def scale(gradients, to):
        return gradients

    def raises(grads, max_delta):
        raise RuntimeError("no clip today")

    def hangs(grads, max_delta):
        time.sleep(60)

    def holds_the_interpreter(grads, max_delta):
        ctypes.PyDLL(None).sleep(60)  # a call of PyDLL keeps the interpreter's lock; this one keeps no core busy

    def crashes(grads, max_delta):
        if len(grads) > 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        return good(grads, max_delta)

    def leaves(grads, max_delta):
        print("what is printed is not for the parent")
        os._exit(3)

    def garbage(grads, max_delta):
        return "clipped"

    class Target:
        name = "a class"
        claims = {"optax.clip": ("float32", "several", "functional")}

        def make(self, values, shape, dtype):
            return np.array(values, dtype).reshape(shape)

        def read(self, array):
            return array.reshape(-1).tolist(), array.shape, str(array.dtype)

        def run(self, operation, gradients, arguments):
            return good(gradients, **arguments), None

    target, malformed = Target(), Target()
    malformed.claims = 3
    number = 3
"""


@pytest.fixture
def clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with clips.py, as the working directory."""
    (tmp_path / "clips.py").write_text(textwrap.dedent(CLIPS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the report."""
    status = main(["conformance", *arguments, "--json", "report.json"])
    return status, json.loads(Path("report.json").read_text())


def statuses(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the status and the reason of each case that ran."""
    return {r["case"]: (r["status"], r["reason"]) for r in report["results"] if r["status"] != "unclaimed"}


@pytest.mark.parametrize("target", ["clips:good", "clips.py:good"])
def test_a_function_that_conforms(clips: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = run(target, *SOME)
    assert status == 0
    assert statuses(report) == {"optax.clip/both-sides": ("pass", ""), "optax.clip/several": ("pass", "")}
    shown = capsys.readouterr()
    assert "good" in shown.out
    assert "good: running" in shown.err
    assert "0 not as they should be" in shown.err


def test_a_function_that_does_not(clips: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = run("clips.py:bad", *SOME)
    assert status == 1
    assert statuses(report)["optax.clip/both-sides"] == ("fail", "")
    assert "does not conform" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["target", "Target"])
def test_a_target(clips: Path, name: str) -> None:
    status, report = run(f"clips:{name}", *SOME)
    assert status == 0
    assert list(report["targets"]) == ["a class"]


@pytest.mark.parametrize(
    ("name", "reason", "words"),
    [
        ("raises", "raised", "RuntimeError: no clip today"),
        ("garbage", "garbage", "must return a list"),
        ("hangs", "hung", "did not end within 0.5 seconds"),
        ("leaves", "crashed", "the process ended with exit status 3"),
        ("holds_the_interpreter", "hung", "held the interpreter"),
    ],
)
def test_functions_that_fail(clips: Path, name: str, reason: str, words: str) -> None:
    status, report = run(f"clips:{name}", *SOME[2:], "--seconds", "0.5")  # one case: each may start another process
    assert status == 1
    assert statuses(report) == {"optax.clip/both-sides": ("fail", reason)}
    assert all(words in result["message"] for result in report["results"] if result["status"] == "fail")


def test_what_crashes_is_started_again(clips: Path) -> None:
    status, report = run("clips:crashes", *SOME[:-2], "--select", "*/nan", "--dialect", "optax.clip")
    assert status == 1
    assert statuses(report) == {
        "optax.clip/both-sides": ("pass", ""),
        "optax.clip/nan": ("pass", ""),
        "optax.clip/several": ("fail", "crashed"),
    }
    assert "SIGSEGV" in next(result["message"] for result in report["results"] if result["reason"] == "crashed")
    ids = [result["case"] for result in report["results"]]
    assert len(ids) == len(set(ids))


def test_what_always_crashes_is_given_up(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradclip.conformance.processes.MOST_CRASHES", 2)
    status, report = run("clips:leaves", "--dialect", "optax.clip", "--select", "*/limit-*")
    reasons = [result["message"] for result in report["results"] if result["status"] == "fail"]
    assert status == 1
    assert sum("the process ended with" in reason for reason in reasons) == 2
    assert sum("not tried: the process ended 2 times" in reason for reason in reasons) == len(reasons) - 2 > 0
    assert all("not tried" not in result["message"] for result in report["results"] if result["status"] == "unclaimed")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("clips:number", "claims cannot be read"),
        ("clips:malformed", "must be a mapping"),
    ],
)
def test_what_is_no_target_spares_the_others(clips: Path, target: str, words: str) -> None:
    status, report = run(target, "clips:target", *SOME)
    assert status == 1
    found = statuses(report)
    assert [value for value in found.values() if value[0] == "fail"] == [("fail", "malformed")]
    assert words in next(result["message"] for result in report["results"] if result["status"] == "fail")
    assert found["optax.clip/both-sides"] == ("pass", "")


def test_files(clips: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(report.__file__).parent
    assert main(["conformance", "clips:bad", *SOME, "--json", "-", "--html", "report.html"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads((folder / "report.schema.json").read_text()))
    assert document["conformant"] is False
    assert "<html" in Path("report.html").read_text(encoding="utf-8")


def test_expected_failures(clips: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("xfails.json").write_text(json.dumps({"bad": {"optax.clip/*": "it halves"}}))
    status, report = run("clips:bad", *SOME, "--xfails", "xfails.json")
    assert status == 0
    assert set(statuses(report).values()) == {("expected", "")}
    capsys.readouterr()
    status, report = run("clips:target", *SOME, "--xfails", "xfails.json")
    assert (status, set(statuses(report).values())) == (2, {("pass", "")}), "it is about another target, or misspelt"
    assert "names a target that is not tested.\nReceived: 'bad'\nHint: the targets are a class." in capsys.readouterr().err
    Path("xfails.json").write_text(json.dumps({"a class": {"optax.clip/several": "it is said to fail"}}))
    status, report = run("clips:target", *SOME, "--xfails", "xfails.json")
    assert status == 1
    assert statuses(report)["optax.clip/several"] == ("unexpected", "")


USAGE: list[tuple[tuple[str, ...], str]] = [
    (("no_such_module:clip", "clips:target"), "There is no module no_such_module"),
    (("no_such_file.py:clip", "clips:target"), "There is no file no_such_file.py"),
    (("clips:no_such_object", "clips:target"), "clips has no function no_such_object; it has good"),
    (("clips:scale",), "The names of the function do not tell which clip it is"),
    (("clips:scale", "--dialect", "torch"), "The names of the function do not tell which clip it is"),
    (("clips:good", "--dialect", "optax.clip", "--arrays", "lists"), "There are no arrays of this name"),
    (("clips:target", "--dialect", "tourch"), "There is no dialect or operation of this name"),
    (("clips:target", "--select", "no such case"), "No case matches"),
    (("clips:target", "--xfails", "none.json"), "none.json"),
    (("clips:target", "--xfails", "clips.py"), "Expecting value"),
    (("clips:target", "--xfails", "unknown.json"), "a case that does not exist"),
    (("clips:target", "--xfails", "elsewhere.json", "--list"), "a case that does not exist"),
    (("clips:target", "--xfails", "deep.json"), "nested too deeply"),
    (("clips:target", "--xfails", "long.json"), "Exceeds the limit"),
    (("clips:target", "--xfails", "latin.json"), "codec can't decode"),
    (("clips:target", "--xfails", "."), "not a file"),
    (("clips:target", "--select", "no such case", "--list"), "No case matches"),
    (("gradclip:tourch",), "There is no target of this name"),
    (("native:numpy",), "There is no target of this name"),
    (("native:torch@jax",), "There is no target of this name"),
    (("native:keras@mxnet",), "There is no target of this name"),
    (("clips",), "This is not a target"),
]


@pytest.mark.parametrize(("arguments", "words"), USAGE, ids=[" ".join(arguments) for arguments, _ in USAGE])
def test_wrong_usage(clips: Path, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("unknown.json").write_text(json.dumps({"a class": {"optax.clip/no-such": "a slip"}}))
    Path("elsewhere.json").write_text(json.dumps({"another": {"optax.clip/no-such": "a slip"}}))
    Path("deep.json").write_text("[" * 100_000)
    Path("long.json").write_text("9" * 5000)
    Path("latin.json").write_bytes(b'{"a class": "\xe9"}')
    assert main(["conformance", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan", "inf"])
def test_seconds(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["conformance", "--seconds", seconds])
    assert "must be a number of seconds" in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.partition("/")[0] for line in lines} == set(OPERATIONS)
    assert "optax.clip/several  (float32, several)" in lines
    assert main(["conformance", "--list", "--dialect", "keras", "--select", "*/E4"]) == 0
    assert [line.partition("  ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "keras.clipnorm/E4",
        "keras.global_clipnorm/E4",
    ]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name in ("jinja2", "rich") else found(name))
    assert main(["conformance"]) == 2
    assert "needs jinja2 and rich: python -m pip install 'gradclip[conformance]'" in capsys.readouterr().err


def test_importing_the_command_imports_no_more() -> None:
    code = "import sys, gradclip.commands.conformance; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=TIME_LIMIT)
    imported = set(done.stdout.split())
    assert "gradclip.commands.conformance" in imported
    assert not {"jinja2", "jsonschema", "rich", "gradclip.conformance.engine"} & imported


# ---- named targets ----------------------------------------------------------------------------------------------------------


def test_specifications() -> None:
    assert Specification.parse("native:keras@torch").environment == {"KERAS_BACKEND": "torch"}
    assert Specification.parse("native:keras").environment == Specification.parse("gradclip:jax").environment == {}
    assert Specification.parse("a/clips.py:Clips.clip").on == "Clips.clip"
    assert [one.text for one in installed()] == [f"gradclip:{name}" for name in ARRAYS if util.find_spec(name) is not None]


def test_a_framework_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradclip.backends.targets.torch", None)
    with pytest.raises(ArgumentError, match=r"There are no arrays of this name\.\nReceived: arrays='torch'"):
        Specification.parse("gradclip:torch").load()
    with pytest.raises(ArgumentError, match=r"There is no native of this name\.\nReceived: framework='torch'"):
        Specification.parse("native:torch").load()


def test_gradclip_by_name(clips: Path) -> None:
    status, report = run("gradclip:numpy", "--select", "*/E4", "--select", "*/bound")
    assert status == 0
    ((name, entry),) = report["targets"].items()
    assert name == f"gradclip on numpy {np.__version__}"
    assert entry["versions"]["numpy"]


def test_the_shipped_expected_failures_have_reasons() -> None:
    assert set(shipped_xfails()) >= {"torch *", "tensorflow *", "paddle *", "optax *"}
