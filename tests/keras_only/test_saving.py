"""A clipped optimizer is saved and loaded with its model, including the rule."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any

import keras
import pytest
from keras import optimizers
from keras_only.fits import distance, fit, fit_on, python, weights

from gradclip import Rule
from gradclip.backends.keras import clipped
from gradclip.dialects import keras as dialect
from gradclip.dialects import optax, paddle, tensorflow, torch

# NumPy 2 warns about Keras whenever Keras reads one of its variables
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")

GLOBAL = dialect.global_clipnorm(0.1)
INF = math.inf
RULES = [
    torch.clip_grad_norm(max_norm=1.0, norm_type=INF),
    torch.clip_grad_norm(max_norm=INF, norm_type=-INF),
    torch.clip_grad_value(0.5),
    tensorflow.clip_by_norm(5.0, axes=[0, -1]),
    tensorflow.clip_by_value(-INF, 1.0),
    paddle.clip_grad_by_global_norm(2.0),
    optax.adaptive_grad_clip(0.01, axis=1),
    optax.clip_by_block_rms(0.5),
    GLOBAL,
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_configuration_is_strict_json_and_comes_back(rule: Rule) -> None:
    config = json.loads(json.dumps(clipped(optimizers.AdamW(0.01, weight_decay=0.1), rule).get_config(), allow_nan=False))
    again = optimizers.deserialize({"class_name": "gradclip>Clipped", "config": config, "registered_name": "gradclip>Clipped"})
    assert again.clip_rule == rule
    assert isinstance(again, optimizers.AdamW)
    assert again.get_config() == config
    assert config["weight_decay"] == 0.1


def test_the_configuration_names_the_class_that_every_keras_has() -> None:
    saved = clipped(optimizers.Adam(), GLOBAL).get_config()["clipped"]["optimizer"]
    assert saved == {"module": "keras.optimizers", "class_name": "Adam", "registered_name": None}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_an_optimizer_can_be_copied_as_kerass_own(copied: Any) -> None:
    optimizer = clipped(optimizers.Adam(0.25), dataclasses.replace(torch.clip_grad_norm(1.0), skip_above=10.0), patience=3)
    again = copied(optimizer)
    assert again is not optimizer
    assert isinstance(again, optimizers.Adam)
    assert again.get_config() == optimizer.get_config()


@keras.saving.register_keras_serializable("tests")
class OwnSGD(optimizers.SGD):
    """A user's optimizer."""


@pytest.mark.parametrize("make", [optimizers.Adam, OwnSGD])
def test_a_saved_model_trains_on_as_if_it_had_not_been_saved(make: Any, tmp_path: Path) -> None:
    schedule = optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    model = fit(clipped(make(schedule), GLOBAL))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, make)
    assert loaded.optimizer.clip_rule == GLOBAL
    assert distance(weights(fit_on(loaded, 3)), weights(fit_on(model, 3))) == 0


@pytest.mark.drawn(1, torch=0, tensorflow=0)
def test_another_process_loads_it_if_it_imports_the_slot(tmp_path: Path) -> None:
    fit(clipped(optimizers.SGD(0.1), GLOBAL)).save(tmp_path / "model.keras")
    script = """
        import sys, keras
        try:
            keras.models.load_model(sys.argv[1])
        except TypeError as error:
            print("Could not locate class 'ClippedSGD'" in str(error))
        import gradclip.backends.keras
        print(keras.models.load_model(sys.argv[1]).optimizer.clip_rule)
    """
    done = python(script, str(tmp_path / "model.keras"))
    assert done.stdout.split() == ["True", "keras.global_clipnorm"], done.stderr
