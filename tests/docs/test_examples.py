"""The examples of this run's framework run, and train."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from frameworks.base import Framework

EXAMPLES = Path(__file__).parents[2] / "examples"


def losses(result: Any) -> list[list[float]]:
    """Return the losses of each training in an example's result."""
    return list(result.values()) if isinstance(result, dict) else [result]


def test_the_training_scripts_train(backend: Framework, capsys: pytest.CaptureFixture[str]) -> None:
    scripts = sorted(EXAMPLES.glob(f"{backend.name}_loop.py"))
    assert len(scripts) == 1, f"one training script for {backend.name}"
    for run in losses(runpy.run_path(str(scripts[0]))["main"]()):
        assert run[-1] < run[0] / 3
    assert "loss" in capsys.readouterr().out


@pytest.mark.needs("trains")
def test_the_runs_that_explode_survive_and_are_seen(backend: Framework, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monitor, losses = runpy.run_path(str(EXAMPLES / f"{backend.name}_monitor.py"))["main"](steps=160)
    check_the_run(monitor)
    usual = [loss for step, loss in enumerate(losses) if step % 100 not in (37, 51)]
    assert sum(usual[-10:]) / 10 < usual[0] / 3


def check_the_run(monitor: Any) -> None:
    """The report shows the spikes in the example; the clip bounds them by a limit that follows the run."""
    found = monitor.report()
    assert (found["steps"], found["not_finite"], found["not_finite_first_step"], found["not_finite_last_step"]) == (
        160,
        2,
        51,
        151,
    )
    assert found["norm_before_largest"] > 20 * found["norm_after_largest"]
    assert 2 <= found["clipped_steps"] < 40
    assert found["norm_before_p50"] < 2.0
