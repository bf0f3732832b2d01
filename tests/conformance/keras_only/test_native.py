"""Keras's own clips on the Keras backend of this process: one run, compared with the declarations and the recordings."""

from __future__ import annotations

import json
from pathlib import Path

import keras
import pytest
from vectors.command import main as record

from gradclip.conformance import Report, check_target, native_target
from gradclip.conformance.declared import shipped_xfails


@pytest.fixture(scope="module")
def report() -> Report:
    target = native_target("keras")
    assert target.name == f"keras {keras.__version__} on {keras.backend.backend()}"
    assert set(target.claims) == {"keras.clipnorm", "keras.global_clipnorm", "keras.clipvalue"}
    return check_target(target, xfails=shipped_xfails())


@pytest.mark.slow("a changed Keras; the environment pins its version")
@pytest.mark.needs("has_recorded_natives")
def test_keras_conforms_but_for_what_is_declared(report: Report) -> None:
    assert [f"{result.status} {result.case}: {result.message}" for result in report.results if not result.conformant] == []
    assert 0 < report.counts()["expected"] < report.counts()["pass"]


@pytest.mark.slow("a recording that is not of this Keras")
@pytest.mark.needs("has_recorded_natives")
def test_the_recording_holds(report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report.as_json()), encoding="utf-8")
    arguments = ["--check", "--record", f"keras@{keras.backend.backend()}", "--report", str(path)]
    assert record(arguments) == 0, capsys.readouterr().out
