"""Keras's optimizers as targets, one for each of their clip keywords."""

from __future__ import annotations

import keras
import pytest

from gradclip.conformance import check_target
from gradclip.conformance.slots import makes_slot, slot_target


@pytest.mark.drawn(6, tensorflow=1, jax=1)
@pytest.mark.parametrize("keyword", ["clipnorm", "global_clipnorm", "clipvalue"])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_an_optimizer_passes_as_the_native_does(name: str, keyword: str) -> None:
    operation, make = f"keras.{keyword}", getattr(keras.optimizers, name)
    assert makes_slot(make, operation)
    report = check_target(slot_target(make, operation, "keras"), dialects=[operation], like="native:keras")
    assert [result.case for result in report.results if result.status == "fail"] == []
    assert sum(result.status == "pass" for result in report.results) > 20
