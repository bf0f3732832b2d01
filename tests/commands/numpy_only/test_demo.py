"""The demo trains, compares and reports its findings, including failures."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import numpy as np
import pytest
from launched import TIME_LIMIT
from rich.console import Console
from sklearn.datasets import load_digits

from gradclip.backends.demo import digits, story
from gradclip.commands import cli, demo_alone, demo_report, demo_runs
from gradclip.commands.demo_story import Story, Training


def gradclip_demo(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "80", **variables}
    command = [sys.executable, "-m", "gradclip", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=TIME_LIMIT)


def made_up(*names: str, steps: int = 3) -> demo_runs.Comparison:
    """Return the demo's outcome for frameworks that all report the same numbers."""
    runs = []
    for name in names:
        run = demo_runs.Run(name, version="1.0", seconds=0.5)
        for i, call in enumerate(demo_runs.RULES):
            for step in range(steps):
                norm = 0.5 * 10.0 ** (4 - step % 9)
                run.receive({"rule": i, "loss": 2.0 - step / 2, "norm": [norm], "coefficient": [call.formula(norm)]})
            run.receive({"rule": i, "accuracy": 0.9})
        runs.append(run)
    return demo_runs.Comparison(steps, runs, told(steps))


def told(steps: int, *norms: float, lost: float = math.nan) -> Story:
    """Return a story in which only the training without a clip diverges, at its last step."""
    story = Story([Training(""), *(Training(str(call)) for call in demo_runs.RULES)])
    for number in range(len(story.trainings)):
        for step in range(steps):
            is_lost = number == 0 and step == steps - 1
            norm = lost if is_lost else 2.0 + step
            story.receive({"training": number, "loss": lost if is_lost else 1.0 / (1 + step), "norm": [1.0, norm]})
        story.receive({"training": number, "accuracy": 0.1 if number == 0 else 0.9})
    return story


def printed(outcome: demo_runs.Comparison, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    demo_report.show(outcome, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_story_is_of_a_training_that_explodes_without_a_clip_and_learns_with_each(tmp_path: Path) -> None:
    done = gradclip_demo("--frameworks", "numpy", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    story = json.loads(done.stdout)["story"]
    without, *clipped = story["trainings"]
    assert without["rule"] == ""
    assert without["lost_at"] < 30
    assert without["accuracy"] < 0.2
    finite = [float(x) for x in without["norm"][: without["lost_at"] - 1]]
    assert max(finite) > 1e4 * finite[0]
    assert [training["rule"] for training in clipped] == list(map(str, demo_runs.RULES))
    for training in clipped:
        assert training["lost_at"] is None
        assert len(training["loss"]) == 300
        assert training["loss"][-1] < 0.3 * training["loss"][0]
        assert training["accuracy"] > 0.85
        assert max(training["norm"]) > 1  # so the clip acts


def test_the_gradients_of_the_story_are_right() -> None:
    weights = [weight.astype(np.float64) for weight in story.weights()]
    rng = np.random.default_rng(7)
    batch = digits.Digits(rng.random((4, 64)), np.array([1, 5, 0, 9]))
    _, gradients = story.differentiate(weights, batch)
    for i, gradient in enumerate(gradients):
        direction = rng.standard_normal(gradient.shape)
        moved = [[w + sign * 1e-6 * direction if k == i else w for k, w in enumerate(weights)] for sign in (1, -1)]
        up, down = (story.differentiate(each, batch)[0] for each in moved)
        assert (up - down) / 2e-6 == pytest.approx(float(np.sum(gradient * direction)), rel=1e-5)


def test_the_story_is_shown_as_bars() -> None:
    text = printed(made_up("numpy", steps=300))
    assert text.startswith("Why clip?\n")
    lines = text.splitlines()
    assert "without a clip: lost at step 300, 10% recognised" in lines
    assert f"{demo_runs.RULES[0]}: 90% recognised" in lines
    (norm, *_), (loss, *_) = ([line for line in lines if line.startswith(name)][1:] for name in ("norm", "loss"))
    assert norm.split()[1][0] == "▁"
    assert norm.split()[1][-1] == "█"
    assert norm.endswith("most 3e+02, last 3e+02")
    assert loss.split()[1][0] == "█"
    assert loss.split()[1][-1] == "▁"
    assert len(norm.split()[1]) > 40
    assert "×" in next(line for line in lines if line.startswith("norm"))
    assert max(map(len, lines)) <= 80
    assert text.index("Why clip?") < text.index("The same limit, three meanings")
    both = printed(made_up("numpy", "torch"))
    assert both.index("Why clip?") < both.index("Do the frameworks agree?")


def test_a_story_of_few_steps_and_of_none() -> None:
    short = made_up("numpy")
    short.story = told(1, lost=2.0)
    assert "norm  ▁  most 2, last 2" in printed(short)
    short.story = Story([Training("")], error="crashed with SIGILL")
    assert not short.good
    assert "FAILED: crashed with SIGILL" in printed(short)
    short.story = told(3)
    short.story.receive({"training": 1, "loss": 1.0, "norm": [math.inf]})
    assert not short.good
    short.story = told(3, lost=0.0)
    assert short.good
    assert "most 1, last 0" in printed(short)


def test_what_is_printed_and_what_is_said_meanwhile(tmp_path: Path) -> None:
    done = gradclip_demo("--steps", "12", "--frameworks", "numpy", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for call in demo_runs.RULES:
        assert f"{call}: " in done.stdout
        assert f"numpy: training with {call}" in done.stderr
    assert "numpy: done in " in done.stderr
    assert "norm before" not in done.stdout  # a table of one framework compares nothing
    assert "DISAGREE" not in done.stdout
    assert "AGREE: coefficients with the formulas" in done.stdout
    assert "NumPy ran alone" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [("import os; os.abort()", "crashed with SIGABRT"), ("raise ImportError('libbroken.so')", "ImportError: libbroken.so")],
)
def test_a_framework_that_crashes_is_named_and_the_others_go_on(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "fakes").mkdir()
    (tmp_path / "fakes" / "paddle.py").write_text(text)
    done = gradclip_demo("--steps", "3", "--frameworks", "paddle,numpy", folder=tmp_path, PYTHONPATH=str(tmp_path / "fakes"))
    assert done.returncode == 1
    assert f"FAILED: paddle: {reason}" in done.stdout
    assert f"paddle: {reason}" in done.stderr
    assert "Held-out images recognised: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--frameworks", "nosuch"],
            "The demo has no such framework.\nReceived: --frameworks nosuch\nHint: choose from numpy, ",
        ),
        (["--frameworks", ""], "The demo has no such framework."),
    ],
)
def test_a_framework_that_is_unknown_ends_with_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_framework_that_is_not_installed_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_runs.registry, "installed", lambda: {"numpy": True, "paddle": False})
    assert cli.main(["demo", "--frameworks", "paddle"]) == 2
    assert capsys.readouterr().err == "paddle is not installed.\nReceived: --frameworks paddle\nHint: installed: numpy.\n"


def test_a_missing_package_ends_with_2_and_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name in ("rich", "sklearn") else find(name))
    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err == "gradclip demo needs rich and sklearn: python -m pip install 'gradclip[demo]'\n"


def test_all_installed_frameworks_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"jax": True, "numpy": True, "torch": False, "jaxlib": True}
    monkeypatch.setattr(demo_runs.registry, "installed", lambda: here)
    asked: list[str] = []
    monkeypatch.setattr(demo_runs.children, "run", lambda module, arguments, *rest: asked.append(arguments[0]))
    demo_runs.run(1, None, demo_report.Shown(Console(file=io.StringIO())))
    assert sorted(asked) == ["jax", "numpy", "story"]


WITHOUT = """
import sys
from importlib import util

found, blocked = util.find_spec, sys.argv[1:]
util.find_spec = lambda name, *rest: None if name in blocked else found(name, *rest)


class Blocked:
    def find_spec(name, *rest):
        if name in blocked:
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Blocked)
from gradclip.commands import cli

sys.exit(cli.main(["demo", "--steps", "12"]))
"""


@pytest.mark.parametrize("missing", ["", "libcst", "pathspec"])
def test_numpy_alone_shows_three_meanings_and_the_findings_in_50_columns(missing: str, tmp_path: Path) -> None:
    blocked = ["torch", "tensorflow", "paddle", "jax", "keras", *filter(None, [missing])]
    environment = {**os.environ, "COLUMNS": "50"}
    command = [sys.executable, "-c", WITHOUT, *blocked]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=TIME_LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert max(map(len, done.stdout.splitlines())) <= 50
    assert "NumPy ran alone: install torch, tensorflow," in lines
    at = lines.index("The same limit, three meanings")
    assert lines[at + 1] == "Two gradients, [3, 4], [0.6, 0.8], clipped at 1.0:"
    clipped = {"torch.clip_grad_norm(1.0)": "[0.588, 0.784], [0.118, 0.157]", "keras.clipnorm(1.0)": "[0.6, 0.8], [0.6, 0.8]"}
    clipped["optax.clip(1.0)"] = "[1, 1], [0.6, 0.8]"
    assert {rule: lines[lines.index(rule) + 1].strip() for rule in clipped} == clipped
    found = [line.split()[:3] for line in lines if line.startswith("line ")]
    of_a_call = [["line", "15:", "GM101"]] if missing != "libcst" else []
    assert found == [["line", "9:", "GM107"], *of_a_call, ["line", "21:", "GM108"]]
    assert f"{len(found)} findings of gradclip lint" in lines


def test_the_digits_are_scikit_learns() -> None:
    images, labels = load_digits(return_X_y=True)
    train, test = digits.load()
    shuffled = np.random.default_rng(digits._SEED).permutation(len(labels))
    assert np.array_equal(np.concatenate([train.labels, test.labels]), labels[shuffled])
    assert np.array_equal(np.concatenate([train.images, test.images]), images[shuffled] / 16)


def test_the_findings_are_those_of_lint(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(demo_alone.PROGRAM)
    command = [sys.executable, "-m", "gradclip", "lint", "train.py", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=TIME_LIMIT)
    shown = demo_alone.findings()
    assert shown is not None
    mistakes = json.loads(done.stdout)["alarms"]
    assert [(one["line"], one["code"], one["reason"]) for one in mistakes] == [(f.line, f.code, f.reason) for f in shown]


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_tables_fit_and_show_the_first_and_the_last_step(width: int) -> None:
    text = printed(made_up("numpy", "torch", "tensorflow", "paddle", "jax", steps=300), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text
    heads = [line.split() for line in lines if line.lstrip().startswith("step ")]
    assert len(heads) == 3
    assert all(head[0] == "step" and head[1] == "1" and head[-3:] == ["300", "max", "diff"] for head in heads)
    assert "AGREE: torch, tensorflow, paddle, jax with numpy: within 0.0e+00 (bound 1e-04)" in " ".join(text.split())


def test_one_number_that_is_off_is_disagreement() -> None:
    outcome = made_up("numpy", "torch")
    assert outcome.good
    outcome.runs[1].histories[1].norm[2] = [50.0 * (1 + 2 * demo_runs.BOUND)]
    assert outcome.differences(outcome.runs[1], 1)["norm"] == pytest.approx(2 * demo_runs.BOUND)
    assert not outcome.good
    assert "DISAGREE: torch with numpy: within 2.0e-04 (bound 1e-04)" in printed(outcome)


def test_a_coefficient_that_all_agree_on_and_that_is_not_the_formula_is_disagreement() -> None:
    outcome = made_up("numpy", "torch")
    for run in outcome.runs:  # as if torch omitted its epsilon
        run.histories[0].norm[2], run.histories[0].coefficient[2] = [0.5], [0.25 / 0.5]
    assert outcome.largest <= demo_runs.BOUND
    assert not outcome.good
    assert "DISAGREE: coefficients with the formulas" in printed(outcome)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_disagreement(bad: float) -> None:
    outcome = made_up("numpy", "torch")
    outcome.runs[1].histories[2].loss[1] = bad
    assert outcome.largest == math.inf
    assert not outcome.good


def test_a_run_that_stops_early_is_disagreement() -> None:
    outcome = made_up("numpy", "torch")
    outcome.runs[1].histories[0].loss.pop()
    assert outcome.largest == math.inf


def test_without_the_reference_nothing_is_compared() -> None:
    outcome = made_up("numpy", "torch")
    outcome.runs[0].error = "crashed with SIGILL"
    assert not outcome.good
    text = printed(outcome)
    assert "FAILED: numpy: crashed with SIGILL" in text
    assert "NOTHING TO COMPARE WITH: numpy failed." in text


def test_a_terminal_gets_bars() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    outcome = made_up("numpy", "torch")
    outcome.runs[1].error = "crashed with SIGABRT"
    with demo_report.Shown(console) as bars:
        for run in outcome.runs:
            bars.start(run, 3)
            bars.step(run)
            bars.end(run)
    text = screen.getvalue()
    assert "numpy" in text
    assert "done" in text
    assert "torch" in text
    assert "failed" in text


def test_the_example_learns(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[3] / "examples" / "numpy_loop.py"
    spec = util.spec_from_file_location("numpy_loop", path)
    assert spec is not None
    assert spec.loader is not None
    example = util.module_from_spec(spec)
    spec.loader.exec_module(example)
    losses = example.main(steps=60)
    assert len(losses) == 60
    assert losses[-1] < 0.5 * losses[0]
    assert capsys.readouterr().out.startswith("step   1  loss 2.")
