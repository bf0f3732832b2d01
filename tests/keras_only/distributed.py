"""Prints as JSON what ``fit`` trains on JAX with each rule: on one device, and under each ``keras.distribution`` of eight."""

import json
import os
import warnings

import xla_flags

os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu", XLA_FLAGS=xla_flags.of_devices(8))

import dataclasses

import keras
import numpy as np
from keras import distribution

from gradclip import Adaptive, Group, clipped, limits
from gradclip.core import errors
from gradclip.dialects import keras as dialect
from gradclip.dialects import optax

warnings.simplefilter("error", errors.GradclipWarning)
generator = np.random.default_rng(0)
rows = generator.normal(size=(64, 8)).astype("float32")
targets = generator.normal(size=(64, 1)).astype("float32")
targets[24:32] *= 100  # the step that is skipped


def rules():
    skips = dataclasses.replace(dialect.global_clipnorm(0.1), skip_above=30.0)
    return {
        "global_clipnorm": dialect.global_clipnorm(0.1),
        "clipnorm": dialect.clipnorm(0.05),
        "clipvalue": dialect.clipvalue(0.01),
        "units": optax.adaptive_grad_clip(0.02),
        "block": optax.clip_by_block_rms(0.01),
        "groups": [Group(dialect.global_clipnorm(0.05), "*kernel"), Group(dialect.clipnorm(0.02))],
        "follows": dialect.global_clipnorm(Adaptive(limits.quantile(0.5, warmup=2))),
        "skips": skips,
    }


def model_parallel():
    mesh = distribution.DeviceMesh((2, 4), ("batch", "model"), distribution.list_devices())
    layouts = distribution.LayoutMap(mesh)
    layouts[".*hidden.kernel"] = (None, "model")
    layouts[".*hidden.bias"] = ("model",)
    layouts[".*out.kernel"] = ("model", None)
    return distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")


def trained(rule, made):
    distribution.set_distribution(None if made is None else made())
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(16, activation="tanh", name="hidden"), keras.layers.Dense(1, name="out")]
    model = keras.Sequential([keras.layers.Input((8,)), *layers])
    optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
    model.compile(optimizer if rule is None else clipped(optimizer, rule), loss="mse")
    model.fit(rows, targets, batch_size=8, epochs=2, shuffle=False, verbose=0)
    devices = {len(v.value.sharding.device_set) for v in model.trainable_variables}
    divided = any(not v.value.sharding.is_fully_replicated for v in model.trainable_variables)
    return {"weights": [w.tolist() for w in model.get_weights()], "devices": devices.pop(), "divided": divided}


WAYS = {"one": None, "data": distribution.DataParallel, "model": model_parallel}
found = {name: {way: trained(rules()[name], made) for way, made in WAYS.items()} for name in rules()}
print(json.dumps(found | {"none": {"one": trained(None, None)}}))
