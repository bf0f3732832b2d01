"""The parent process: workers that die, frameworks that are not installed, the arguments and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmark_command.outcomes import case, outcome

from benchmarks import __main__ as command
from benchmarks import run as running
from benchmarks.floors import QUICK_FLOORS
from benchmarks.outcome import Outcome
from benchmarks.run import run
from benchmarks.worker import Options

KEYS = [f"numpy/clip_grad_norm_/{name}/clipped/float32/eager" for name in ("mlp", "lora", "vectors")]


class Worker:
    """A worker that measures KEYS and dies in one of them."""

    def __init__(self, dies_in: str = "", of: str = "crashed with SIGSEGV") -> None:
        self.dies_in, self.of, self.started = dies_in, of, 0

    def __call__(self, module: str, arguments: Sequence[str], receive: Callable[[Any], None], *rest: Any) -> str | None:
        self.started += 1
        after = json.loads(arguments[0])["after"]
        keys = KEYS[KEYS.index(after) + 1 :] if after else KEYS
        receive({"framework": "numpy", "versions": {"numpy": "2"}, "notes": [], "cases": len(keys)})
        receive({"step": "making mlp in float32"})
        for key in keys:
            receive({"start": key})
            if key == self.dies_in:
                return self.of
            receive({"case": case(key, 2.0)})
        return None


def measured(worker: Any, names: Sequence[str] = ("numpy",), **options: Any) -> tuple[Outcome, list[str], int]:
    found, said, saved = outcome(), [], []
    run(names, [Options(**options)], said.append, found, lambda: saved.append(1), worker)
    return found, said, len(saved)


def test_all_goes_well() -> None:
    found, said, saved = measured(Worker())
    assert [entry["key"] for entry in found.cases] == KEYS
    assert said == ["numpy: starting", "numpy: 3 cases", "numpy: making mlp in float32", *KEYS, "numpy: done"]
    assert saved == 2  # once before the set, and once at the end


@pytest.mark.parametrize("place", range(3))
def test_a_case_that_kills_its_process_is_reported_and_the_others_are_measured(place: int) -> None:
    worker = Worker(dies_in=KEYS[place])
    found, said, _ = measured(worker)
    assert [entry["key"] for entry in found.cases] == KEYS
    assert [bool(entry["failures"]) for entry in found.cases] == [i == place for i in range(3)]
    assert found.cases[place]["failures"] == {"process": "crashed with SIGSEGV"}
    assert worker.started == 2
    assert [line for line in said if line in KEYS] == KEYS
    assert "failure" not in found.frameworks["numpy"]


@pytest.mark.parametrize(
    ("of", "patience", "said"),
    [
        ('ended with exit status 1: File "worker.py", line 1', 0, "given up after 0 seconds: --patience"),
        ("ended with exit status 1", 900, "ended with exit status 1"),
        ("crashed with SIGSEGV", 0, "crashed with SIGSEGV"),
    ],
)
def test_a_case_that_exceeds_the_patience_is_reported_as_given_up(of: str, patience: float, said: str) -> None:
    found, _, _ = measured(Worker(KEYS[1], of), patience=patience)
    assert found.cases[1]["failures"] == {"process": said}
    assert [bool(entry["failures"]) for entry in found.cases] == [False, True, False]


def test_a_process_that_dies_of_nothing_in_particular_is_not_started_again() -> None:
    started: list[int] = []

    def worker(*arguments: Any) -> str:
        started.append(1)
        return "ended with exit status 3"

    found, said, _ = measured(worker)
    assert started == [1]
    assert found.frameworks["numpy"]["failure"] == "ended with exit status 3"
    assert said[-1] == "numpy: ended with exit status 3"


def test_a_framework_that_is_not_installed_is_named_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.util, "find_spec", lambda name: None if name == "optax" else object())
    found, said, _ = measured(Worker(), ["jax", "numpy"])
    assert found.frameworks["jax"] == {"skipped": "not installed: optax"}
    assert said[0] == "jax: not installed: optax"
    assert len(found.cases) == 3


def test_no_process_for_a_framework_that_no_pattern_fits() -> None:
    for patterns, started in ((["jax/*"], 0), (["numpy/*"], 1), (["*/mlp/*"], 1), (["jax", "num*"], 1), (["numpy"], 1)):
        worker = Worker()
        measured(worker, only=patterns)
        assert worker.started == started, patterns


# ---- the command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run the command with two made-up cases, and record its arguments."""
    asked: list[Any] = []

    def measure(names: Any, parts: Any, say: Any, found: Outcome, save: Callable[[], None]) -> None:
        asked.append((names, parts))
        found.cases += [case(key, ratio) for key, ratio in zip(KEYS[:2], (0.3, 4.0), strict=True)]
        save()

    monkeypatch.setattr(command, "run", measure)
    return asked


def test_exit_codes(fake: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    assert "MISSED" not in capsys.readouterr().out
    assert command.main(["--check"]) == 1
    assert f"MISSED: {KEYS[0]}: 0.30, at least 0.9 (no eager case is slower)" in capsys.readouterr().out
    assert command.main(["--quick", "--check"]) == 1


def test_a_quick_check_times_again_what_it_misses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Sequence[str]] = []
    floor = QUICK_FLOORS[0].bound
    ratios = {KEYS[0]: [floor / 2, 9.0], KEYS[1]: [floor / 2, floor - 0.01], KEYS[2]: [9.0]}

    def measure(names: Any, parts: Any, say: Any, found: Outcome, save: Any) -> None:
        asked.append(parts[0].only)
        found.cases += [case(key, ratios[key].pop(0)) for key in parts[0].only or KEYS]

    monkeypatch.setattr(command, "run", measure)
    assert command.main(["--quick", "--check"]) == 1
    assert asked == [[], KEYS[:2]]
    verdict = capsys.readouterr().out.partition("MISSED: ")[2]
    assert verdict.startswith(f"{KEYS[1]}: {floor - 0.01:.2f}, at least {floor:g}")
    assert verdict.endswith("1 of 3 floors are missed, by 1 cases.\nOf 1 floors nothing was measured.\n")


def test_what_is_measured(fake: list[Any]) -> None:
    def parts(*arguments: str) -> list[bool]:
        command.main(arguments)
        return [part.accuracy for part in fake[-1][1]]

    assert parts() == [False, True]
    assert parts("--accuracy") == [True]
    assert parts("--only", "numpy/*") == [False]
    assert parts("--only", "numpy/*", "--accuracy") == [True]
    assert fake[-1][1][0].only == ["numpy/*"]
    command.main(["--quick", "--frameworks", "torch,jax", "--rounds", "7", "--device", "cuda"])
    names, (options, _) = fake[-1]
    assert names == ["torch", "jax"]
    assert (options.quick, options.rounds, options.seconds, options.device) == (True, 7, 0.1, "cuda")


def test_a_file_is_written_and_read(fake: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    assert command.main(["--json", str(path)]) == 0
    first = capsys.readouterr().out
    assert command.main(["--load", str(path), "--check"]) == 1
    assert len(fake) == 1
    assert capsys.readouterr().out.startswith(first)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--frameworks", "torch,mxnet"], "unknown: mxnet; there are torch, tensorflow, paddle, jax, numpy"),
        (["--seconds", "0"], "must be above 0, not 0"),
        (["--rounds", "x"], "invalid"),
        (["--device", "tpu"], "invalid choice"),
        (["--what"], "unrecognized arguments"),
    ],
)
def test_wrong_usage(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(arguments)
    assert text in capsys.readouterr().err


def test_no_folder_to_write_to(fake: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--json", str(tmp_path / "none" / "a.json")]) == 2
    assert "There is no folder to write to.\nReceived: " in capsys.readouterr().err
    assert fake == []


def test_no_file_to_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--load", str(tmp_path / "a.json")]) == 2
    assert "There is no such file." in capsys.readouterr().err


def test_no_case_of_such_a_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "run", lambda *arguments: None)
    assert command.main(["--only", "numpy/clip_nothing"]) == 2
    assert capsys.readouterr().err == "No case has such a name.\nReceived: --only numpy/clip_nothing\n"


def test_no_case_because_of_no_framework(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(names: Any, parts: Any, say: Any, found: Outcome, save: Any) -> None:
        found.frameworks["jax"] = {"skipped": "not installed: jax"}

    monkeypatch.setattr(command, "run", measure)
    assert command.main(["--only", "jax/*"]) == 0
    assert "jax: skipped: not installed: jax" in capsys.readouterr().out


def test_an_interrupted_run_shows_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def measure(names: Any, parts: Any, say: Any, found: Outcome, save: Any) -> None:
        found.cases.append(case(KEYS[0], 2.0))
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", measure)
    assert command.main(["--json", str(tmp_path / "a.json")]) == 130
    text = capsys.readouterr()
    assert "Interrupted" in text.err
    assert "clip_grad_norm_/mlp/clipped" in text.out
    assert len(Outcome.read([tmp_path / "a.json"]).cases) == 1
