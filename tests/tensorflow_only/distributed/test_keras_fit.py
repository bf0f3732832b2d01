"""``fit`` under ``tf.distribute``: two replicas train the same model as one device."""

from __future__ import annotations

import functools
import json
import textwrap
from typing import Any

import copies
import numpy as np
import pytest

SCRIPT = textwrap.dedent("""
    import json, os, sys, warnings
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras, numpy as np, tensorflow as tf
    from gradclip.backends.keras import clipped
    from gradclip.dialects import keras as dialect, optax
    from gradclip.core.errors import GradclipWarning

    warnings.simplefilter("error", GradclipWarning)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    one = tf.distribute.get_strategy()
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 7, (32, 3))
    targets = generator.normal(size=(32, 1)).astype("float32")

    def trained(strategy, optimizer, sparse=False, **compiled):
        with strategy.scope():
            keras.utils.set_random_seed(0)
            first = [keras.layers.Embedding(7, 4), keras.layers.Flatten()] if sparse else [keras.layers.Dense(4)]
            model = keras.Sequential([keras.layers.Input((3,)), *first, keras.layers.Dense(1)])
            model.compile(optimizer(), loss="mse", **compiled)
        model.fit(rows, targets, batch_size=8, epochs=2, shuffle=False, verbose=0)
        return [weights.tolist() for weights in model.get_weights()]

    SGD = lambda **clip: keras.optimizers.SGD(0.02, **clip)
    RULES = {
        "global_clipnorm": (dialect.global_clipnorm(0.1), {"global_clipnorm": 0.1}),
        "clipnorm": (dialect.clipnorm(0.05), {"clipnorm": 0.05}),
    }  # by value there is nothing to sum: keras_only/replicas.py has a step
    found = {}
    for name, (rule, native) in RULES.items():
        ours = lambda: clipped(SGD(), rule)
        found[name] = {
            "native, one": trained(one, lambda: SGD(**native)),
            "one": trained(one, ours),
            "two": trained(two, ours),
        }
    # keras_only/replicas.py has a step with each option
    found["global_clipnorm"]["native, two"] = trained(two, lambda: SGD(global_clipnorm=0.1))
    adaptive = lambda: clipped(keras.optimizers.Adam(0.1), optax.adaptive_grad_clip(0.01))
    found["adaptive"] = {"one": trained(one, adaptive), "two": trained(two, adaptive)}
    ours = lambda: clipped(SGD(), RULES["global_clipnorm"][0])
    found["sparse"] = {"one": trained(one, ours, True), "two": trained(two, ours, True)}
    found["eager"] = {"one": trained(one, ours, run_eagerly=True), "two": trained(two, ours, run_eagerly=True)}
    found["none"] = {"one": trained(one, SGD), "two": trained(two, SGD)}
    json.dump(found, sys.stdout)
""")


@functools.cache
def weights() -> dict[str, dict[str, Any]]:
    done = copies.run("tensorflow", "-c", SCRIPT)
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def difference(name: str, one: str, two: str) -> float:
    pairs = zip(weights()[name][one], weights()[name][two], strict=True)
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)


@pytest.mark.parametrize("name", ["global_clipnorm", "clipnorm", "adaptive", "sparse", "eager"])
def test_two_replicas_train_the_model_of_one_device(name: str) -> None:
    assert difference(name, "one", "two") < 1e-5


@pytest.mark.parametrize("name", ["global_clipnorm", "clipnorm"])
def test_it_is_the_model_that_keras_trains_on_one_device(name: str) -> None:
    assert difference(name, "native, one", "two") < 1e-5


def test_what_keras_trains_depends_on_the_number_of_replicas() -> None:
    """Keras clips each replica's gradients before it sums them. If this fails, Keras has fixed it: update the documentation."""
    assert difference("global_clipnorm", "native, one", "native, two") > 1e-3


def test_something_is_clipped() -> None:
    for name in ("global_clipnorm", "clipnorm"):
        pairs = zip(weights()[name]["two"], weights()["none"]["two"], strict=True)
        assert max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs) > 1e-2
