"""Targets that behave unexpectedly: the report says so in printable form, and never calls that conformance."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console

from gradclip.commands.cli import main
from gradclip.conformance import Report, check_target, function_target, parametrize_with_checks
from gradclip.conformance.cases import Plan, plan
from gradclip.conformance.declared import shipped_xfails, xfails_of_run
from gradclip.conformance.processes import Run, Task
from gradclip.conformance.progress import Shown
from gradclip.conformance.report import lay_out
from gradclip.conformance.report.html import page
from gradclip.conformance.specification import Specification
from gradclip.core.errors import ArgumentError

CLIP = "optax.clip"


class Target:
    """A clip by value of lists."""

    name = "odd"
    claims: ClassVar[Any] = {CLIP: {"float32", "several", "functional"}}

    def make(self, values: Any, shape: Any, dtype: str) -> Any:
        return list(values), tuple(shape), dtype

    def read(self, array: Any) -> Any:
        return array

    def run(self, operation: str, gradients: Any, arguments: Any) -> Any:
        limit = float(np.float32(arguments["max_delta"]))
        if not limit >= 0:
            return self.refuse()
        return [([max(min(x, limit), -limit) for x in values], *rest) for values, *rest in gradients], None

    def refuse(self) -> Any:
        raise ValueError("a negative limit")


def run(target: Any, *select: str) -> Report:
    return check_target(target, dialects=[CLIP], select=[f"{CLIP}/{name}" for name in select], seconds=10)


def test_the_target_itself_conforms() -> None:
    assert run(Target(), "both-sides", "bound", "negative_limit").counts()["pass"] == 3


class Skipped(BaseException):
    """Like pytest's own, a BaseException."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Skipped("not today"), SystemExit(0), Mute()], ids=repr)
def test_whatever_it_raises_is_its_own(error: BaseException) -> None:
    class Raising(Target):
        def run(self, operation: str, gradients: Any, arguments: Any) -> Any:
            raise error

    report = run(Raising(), "both-sides", "bound")
    assert [(result.status, result.reason) for result in report.results] == [("fail", "raised")] * 2
    assert all(type(error).__name__ in result.message for result in report.results)


def test_garbage_is_no_refusal() -> None:
    class Silent(Target):
        strict = True  # optax refuses none either

        def refuse(self) -> None:
            return None

    (result,) = run(Silent(), "negative_limit").results
    assert (result.status, result.message) == ("fail", "a limit of -1.0 was not refused")


@pytest.mark.parametrize("error", [SystemExit(0), MemoryError(), RecursionError("too deep")], ids=repr)
def test_a_breakdown_is_no_refusal(error: BaseException) -> None:
    class Breaks(Target):
        def refuse(self) -> Any:
            raise error

    (result,) = run(Breaks(), "limit-negative").results
    assert (result.status, result.reason) == ("fail", "raised")


def test_the_callers_list_is_not_the_targets() -> None:
    def clip(grads: list[Any], max_delta: float) -> list[Any]:
        clipped = [np.clip(g, -max_delta, max_delta) for g in grads]
        grads.clear()
        return clipped

    (result,) = run(function_target(clip, CLIP), "both-sides").results
    assert (result.status, result.message) == ("fail", "the caller's list was changed")


@pytest.mark.parametrize("case", ["all-clipped", "bound"])
def test_what_cannot_be_read_is_garbage(case: str) -> None:
    class Unread(Target):
        def read(self, array: Any) -> Any:
            values, shape, dtype = array
            return [np.float32(value) for value in values], shape, dtype

    (result,) = run(Unread(), case).results
    assert (result.status, result.reason) == ("fail", "garbage")
    assert "read must return numbers" in result.message
    json.dumps(result.as_json())


def test_any_name_can_be_shown() -> None:
    class Named(Target):
        name = "<b>odd</b> \ud800 \x1b[31m"

    report = run(Named(), "both-sides")
    (name,) = report.targets
    assert name == r"<b>odd</b> \ud800 \x1b[31m"
    assert "<b>odd" not in page(lay_out(report))
    json.dumps(report.as_json()).encode()


def test_nothing_tried_is_not_conformance() -> None:
    class Modest(Target):
        claims: ClassVar[Any] = {}

    report = run(Modest(), "both-sides")
    assert (report.counts()["unclaimed"], report.conformant) == (1, False)
    assert not run(Target(), "no-such-case").conformant


def test_targets_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.py").write_text("import numpy as np\ndef clip(grads, max_delta): return [np.clip(g, -1, 1) for g in grads]\n")
    Path("bad.py").write_text("def clip(grads, max_delta): return grads\n")
    wanted = ["--dialect", CLIP, "--select", f"{CLIP}/both-sides", "--json", "report.json"]
    assert main(["conformance", "good.py:clip", "bad.py:clip", *wanted]) == 1
    results = json.loads(Path("report.json").read_text())["results"]
    assert {result["target"]: result["status"] for result in results} == {
        "clip (good.py:clip)": "pass",
        "clip (bad.py:clip)": "fail",
    }


def test_targets_of_one_name_make_no_tests() -> None:
    targets = [function_target(lambda grads, max_delta: grads, CLIP, name="clip") for _ in range(2)]
    with pytest.raises(ArgumentError, match="Two targets have the same name"):
        parametrize_with_checks(targets)


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_report_that_cannot_be_written_is_said_before_the_run(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", "gradclip:numpy", option, str(tmp_path / "none" / "report")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("There is no folder for the report.\nReceived: ")


def test_what_a_target_finds_wrong_with_the_command_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("clip = lambda grads, max_norm: grads\n")  # its source shows no function
    assert main(["conformance", "bad.py:clip", "--select", "bound"]) == 2
    assert "Received: bad.py:clip\nHint: run one of:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("mien.py:clip", "There is no file mien.py.\nHint: did you mean mine.py?\n"),
        ("mine.py:clpi", "mine.py has no function clpi; it has clip, train and Trainer.\n"),
        ("mine.py:Trainer.clap", "mine.py:Trainer has no function clap; it has clip.\n"),
        ("nosuch.module:clip", "There is no module nosuch.\n"),
    ],
)
def test_a_misspelt_target_is_wrong_usage_in_one_sentence(
    target: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = "def train(): ...\ndef clip(grads, max_delta): ...\nclass Trainer:\n    def clip(self, grads, max_delta): ...\n"
    Path("mine.py").write_text(f"from math import sqrt\n{source}_private = train\n")
    assert main(["conformance", target, "--dialect", CLIP]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(said)


def test_a_dialect_may_be_spelled_as_its_rule() -> None:
    assert Task(plan(["torch.clip_grad_norm"]), ["torch.clip_grad_norm"]).operation == "torch.clip_grad_norm_"


def test_a_name_is_never_markup() -> None:
    stream = io.StringIO()
    run = Run(Specification.parse("[bold]mine.py:x:y"), Task(Plan(operations=[])), print, ended=True)
    Shown(Console(file=stream))(run)
    assert stream.getvalue().startswith("[bold]mine.py:x:y: 0 cases")


def test_a_users_declarations_come_beside_those_for_natives(tmp_path: Path) -> None:
    path = tmp_path / "xfails.json"
    path.write_text(json.dumps({"torch *": {"torch.clip_grad_norm_/E2": "mine", "torch.clip_grad_norm_/A1": "mine too"}}))
    mine = {"torch.clip_grad_norm_/E2": "mine", "torch.clip_grad_norm_/A1": "mine too"}
    shipped = shipped_xfails()
    assert xfails_of_run(True, path) == {**shipped, "torch *": {**shipped["torch *"], **mine}}
    assert xfails_of_run(False, path) == {"torch *": mine}
