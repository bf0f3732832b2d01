"""The example runs, and its loss falls."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path

import pytest
from docs.test_examples import EXAMPLES, check_the_run


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
def test_keras_fit(capfd: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "keras_fit.py"
    spec = importlib.util.spec_from_file_location("keras_fit", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    losses = example.main(epochs=2)
    assert len(losses) == 4
    assert losses == sorted(losses, reverse=True)  # the loaded model continues from the saved one
    assert losses[-1] < 0.6
    assert "loaded: ClippedSGD, torch.clip_grad_norm" in capfd.readouterr().out


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
def test_a_run_that_explodes_survives_and_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monitor, (before, after) = runpy.run_path(str(EXAMPLES / "keras_monitor.py"))["main"](steps=160)
    check_the_run(monitor)
    assert after < before / 3
