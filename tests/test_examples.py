"""The examples of this run's framework are run, and train."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from frameworks.base import Framework

EXAMPLES = Path(__file__).parent.parent / "examples"


def losses(result: Any) -> list[list[float]]:
    """The losses of each training that an example returns."""
    return list(result.values()) if isinstance(result, dict) else [result]


def test_the_training_scripts_train(backend: Framework, capsys: pytest.CaptureFixture[str]) -> None:
    scripts = sorted(EXAMPLES.glob(f"{backend.name}_loop.py"))
    assert len(scripts) == 1, f"one training script for {backend.name}"
    for run in losses(runpy.run_path(str(scripts[0]))["main"]()):
        assert run[-1] < run[0] / 3
    assert "loss" in capsys.readouterr().out
