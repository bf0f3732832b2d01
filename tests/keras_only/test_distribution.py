"""Under ``keras.distribution``, which is JAX's alone, eight devices train the model of one."""

from __future__ import annotations

import functools
import json
from typing import Any

import copies
import keras
import numpy as np
import pytest

NAMES = ["global_clipnorm", "clipnorm", "clipvalue", "units", "block", "groups", "follows", "skips"]
pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="keras.distribution is for JAX")


@functools.cache
def found() -> dict[str, dict[str, Any]]:
    done = copies.run("keras", "-m", "keras_only.distributed")
    assert done.returncode == 0, done.stderr[-5000:]
    made: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return made


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in zip(one["weights"], other["weights"], strict=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("layout", "divided"), [("data", False), ("model", True)])
def test_eight_devices_train_the_model_of_one(layout: str, divided: bool, name: str) -> None:
    one, eight = found()[name]["one"], found()[name][layout]
    assert (one["devices"], eight["devices"], eight["divided"]) == (1, 8, divided)
    assert difference(one, eight) < 1e-5
    assert difference(one, found()["none"]["one"]) > 1e-2, "nothing was clipped"


def test_every_rule_is_tried() -> None:
    assert set(found()) == {*NAMES, "none"}
