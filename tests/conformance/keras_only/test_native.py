"""Keras's own clips, on the Keras backend of this process."""

from __future__ import annotations

import keras

from gradclip.conformance import check_target, native_target
from gradclip.conformance.declared import shipped_xfails


def test_keras_conforms_but_for_what_is_declared() -> None:
    target = native_target("keras")
    assert target.name == f"keras {keras.__version__} on {keras.backend.backend()}"
    assert set(target.claims) == {"keras.clipnorm", "keras.global_clipnorm", "keras.clipvalue"}
    report = check_target(target, xfails=shipped_xfails())
    assert [f"{result.status} {result.case}: {result.message}" for result in report.results if not result.conformant] == []
    assert 0 < report.counts()["expected"] < report.counts()["pass"]
