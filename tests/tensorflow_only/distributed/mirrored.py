"""Checks on two replicas, in a separate process.

``python -m tensorflow_only.distributed.mirrored results.json docs/distributed.md``
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from launched import failure
from tensorflow_only.distributed import tensors

import gradclip
from gradclip.dialects import keras, tensorflow, torch

LIMIT, RATE, STEPS = 0.1, 0.5, 5
SUM = tf.distribute.ReduceOp.SUM
RULES = [
    tensorflow.clip_by_global_norm(LIMIT),
    tensorflow.clip_by_norm(LIMIT),
    tensorflow.clip_by_value(-0.01, 0.01),
    torch.clip_grad_norm(LIMIT, math.inf),
    keras.global_clipnorm(LIMIT),
]
WARNING = "The gradients of one replica are clipped before they are summed over all"
Step = Callable[[list[tf.Variable], tf.Tensor, gradclip.Rule], Any]


@functools.cache
def strategy() -> tf.distribute.Strategy:
    """Return the only strategy of this process: TensorFlow would confuse the collectives of several."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def batches() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((STEPS, 8, 6)).astype("float32")


def variables() -> list[tf.Variable]:
    generator = np.random.default_rng(1)
    values = [generator.standard_normal(shape).astype("float32") for shape in ((6, 5), (5,), (9, 5))]
    return [tf.Variable(value) for value in values]


def gradients(model: list[tf.Variable], x: tf.Tensor) -> list[Any]:
    """Return these examples' part of the mean over eight; the last gradient is sparse, with duplicate rows."""
    rows = tf.cast(tf.abs(x[:, 0]) * 3, tf.int32)
    with tf.GradientTape() as tape:
        # silu has a custom gradient; so has a sum over replicas
        out = tf.nn.silu(x @ model[0] + model[1]) + tf.gather(model[2], rows)
        loss = tf.reduce_sum(tf.square(out)) / 40
    return tape.gradient(loss, model)


@functools.cache
def on_one_device(rule: gradclip.Rule) -> list[np.ndarray]:
    model = variables()

    @tf.function
    def step(x: tf.Tensor) -> None:
        result = gradclip.clip(gradients(model, x), rule)
        for variable, g in zip(model, result.grads, strict=True):
            variable.assign_sub(RATE * tf.convert_to_tensor(g))

    for x in batches():
        step(x)
    return [variable.numpy() for variable in model]


def on_replicas(rule: gradclip.Rule, way: Step, *, eagerly: bool = False) -> list[np.ndarray]:
    """Return the variables after some steps; each replica has half of the examples."""
    both = strategy()
    with both.scope():
        model = variables()

    def step(x: Any) -> None:
        way(model, x, rule)

    run = step if eagerly else tf.function(step)
    for x in batches():
        run(
            both.experimental_distribute_values_from_function(
                lambda c, x=x: tf.constant(np.split(x, 2)[c.replica_id_in_sync_group])
            )
        )
    for variable in model:
        first, second = (component.numpy() for component in both.experimental_local_results(variable))
        np.testing.assert_array_equal(first, second)
    return [variable.numpy() for variable in model]


# ---- the ways to clip --------------------------------------------------------------------------------------------------------


def summed_in_the_replica(model: list[tf.Variable], x: Any, rule: gradclip.Rule) -> None:
    def replica(x: tf.Tensor) -> None:
        grads = tf.distribute.get_replica_context().all_reduce(SUM, gradients(model, x))
        update(model, gradclip.clip(grads, rule).grads)

    model[0].distribute_strategy.run(replica, args=(x,))


def averaged_and_multiplied(model: list[tf.Variable], x: Any, rule: gradclip.Rule) -> None:
    def replica(x: tf.Tensor) -> None:
        grads = list(map(tf.convert_to_tensor, gradients(model, x)))
        means = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, grads)
        update(model, gradclip.clip([g * 2 for g in means], rule).grads)

    model[0].distribute_strategy.run(replica, args=(x,))


def in_a_merge_call(model: list[tf.Variable], x: Any, rule: gradclip.Rule) -> None:
    def merged(both: tf.distribute.Strategy, grads: list[Any]) -> None:
        pairs = zip(grads, model, strict=True)
        summed = [both.experimental_local_results(both.extended.reduce_to(SUM, g, v))[0] for g, v in pairs]
        for variable, g in zip(model, gradclip.clip(summed, rule).grads, strict=True):
            both.extended.update(variable, lambda v, g: v.assign_sub(RATE * tf.convert_to_tensor(g)), args=(g,))

    def replica(x: tf.Tensor) -> None:
        tf.distribute.get_replica_context().merge_call(merged, args=(gradients(model, x),))

    model[0].distribute_strategy.run(replica, args=(x,))


def after_the_replicas(model: list[tf.Variable], x: Any, rule: gradclip.Rule) -> None:
    both = model[0].distribute_strategy
    grads = both.run(lambda x: list(map(tf.convert_to_tensor, gradients(model, x))), args=(x,))
    grads = gradclip.clip([both.reduce(SUM, g, axis=None) for g in grads], rule).grads
    for variable, g in zip(model, grads, strict=True):
        both.extended.update(variable, lambda v, g: v.assign_sub(RATE * g), args=(g,))


def before_the_sum(model: list[tf.Variable], x: Any, rule: gradclip.Rule) -> None:
    def replica(x: tf.Tensor) -> None:
        grads = gradclip.clip(gradients(model, x), rule).grads
        update(model, tf.distribute.get_replica_context().all_reduce(SUM, grads))

    model[0].distribute_strategy.run(replica, args=(x,))


def update(model: list[tf.Variable], grads: list[Any]) -> None:
    """Apply the same update from every replica."""

    def merged(both: tf.distribute.Strategy, grads: list[Any]) -> None:
        for variable, g in zip(model, grads, strict=True):
            both.extended.update(variable, lambda v, g: v.assign_sub(RATE * tf.convert_to_tensor(g)), args=(g,))

    tf.distribute.get_replica_context().merge_call(merged, args=(grads,))


def check(rule: gradclip.Rule, way: Step) -> None:
    for got, want in zip(on_replicas(rule, way), on_one_device(rule), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


def clips_what_was_summed_in_the_replica() -> None:
    for rule in RULES:
        check(rule, summed_in_the_replica)


def clips_what_was_averaged_and_multiplied() -> None:
    check(RULES[0], averaged_and_multiplied)


def clips_in_a_merge_call() -> None:
    for rule in RULES[:2]:
        check(rule, in_a_merge_call)


def clips_after_the_replicas() -> None:
    for rule in RULES:
        check(rule, after_the_replicas)


# ---- the wrong place ---------------------------------------------------------------------------------------------------------


def warns_before_the_sum() -> None:
    for rule in RULES:
        with pytest.warns(gradclip.core.errors.GradclipWarning, match=WARNING) as caught:
            got = on_replicas(rule, before_the_sum)
        assert not any(warning.filename.endswith("clip.py") for warning in caught), "the warning points into gradclip"
        assert not np.allclose(got[0], on_one_device(rule)[0], rtol=1e-3, atol=1e-3), rule


def warns_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        on_replicas(RULES[0], before_the_sum)
    assert len(caught) == 1


def can_be_told_that_it_is_meant() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The gradients of one replica")
        on_replicas(RULES[0], before_the_sum)


def says_nothing_of_what_cannot_be_known() -> None:
    """Eager tensors do not show their origin, nor do a function's arguments and the tensors that it closes over."""
    for way in (before_the_sum, summed_in_the_replica, averaged_and_multiplied, in_a_merge_call):
        on_replicas(RULES[0], way, eagerly=True)

    def replica(model: list[tf.Variable], x: tf.Tensor) -> None:
        dense = gradients(model, x)[:2]
        grads = tf.distribute.get_replica_context().all_reduce(SUM, dense)
        got = tf.function(lambda grads: gradclip.clip(grads, RULES[0]).grads)(grads)
        same = tf.function(lambda: gradclip.clip(grads, RULES[0]).grads)()
        for g, h, want in zip(got, same, gradclip.clip(grads, RULES[0]).grads, strict=True):
            np.testing.assert_array_equal(g, want)
            np.testing.assert_array_equal(h, want)

    with strategy().scope():
        model = variables()
    strategy().run(replica, args=(model, tf.constant(batches()[0])))


def warns_in_a_function_of_an_eager_replica() -> None:
    with strategy().scope():
        model = variables()
    clipped = tf.function(lambda x: gradclip.clip(gradients(model, x)[:2], RULES[0]).grads)
    with pytest.warns(gradclip.core.errors.GradclipWarning, match=WARNING):
        strategy().run(clipped, args=(tf.constant(batches()[0]),))


def eager_tensors_do_not_tell() -> None:
    """If this fails, eager tensors show that they were summed: use that in ``backends/tensorflow/distributed.py``."""

    def seen(x: tf.Tensor) -> tuple[Any, ...]:
        return type(x), x.device, x.backing_device, vars(x), dir(x)

    def replica() -> None:
        given = tf.ones([3])
        (summed,) = tf.distribute.get_replica_context().all_reduce(SUM, [given])
        assert summed.numpy().tolist() == [2.0] * 3
        assert seen(summed) == seen(given)

    strategy().run(replica)


def measures_in_a_replica() -> None:
    """A norm alone is not a clip, and the caller is responsible for a known norm."""

    def way(model: list[tf.Variable], x: Any, rule: gradclip.Rule) -> None:
        def replica(x: tf.Tensor) -> None:
            grads = gradients(model, x)
            gradclip.norm(grads, rule)
            update(model, tf.distribute.get_replica_context().all_reduce(SUM, gradclip.scale_by_norm(grads, rule, 1.0).grads))

        model[0].distribute_strategy.run(replica, args=(x,))

    on_replicas(RULES[0], way)


def says_nothing_with_one_replica() -> None:
    one = tf.distribute.OneDeviceStrategy("CPU:0")
    with one.scope():
        model = variables()
    one.run(tf.function(lambda x: gradclip.clip(gradients(model, x), RULES[0]).grads), args=(batches()[0],))


def holds_every_topology() -> None:
    tensors.check(strategy())


CHECKS = [
    clips_what_was_summed_in_the_replica,
    clips_what_was_averaged_and_multiplied,
    clips_in_a_merge_call,
    clips_after_the_replicas,
    warns_before_the_sum,
    warns_once,
    can_be_told_that_it_is_meant,
    says_nothing_of_what_cannot_be_known,
    warns_in_a_function_of_an_eager_replica,
    eager_tensors_do_not_tell,
    measures_in_a_replica,
    says_nothing_with_one_replica,
    holds_every_topology,
]


def run_recipes(path: Path) -> None:
    """Run the blocks of the documentation, each with the names that the first defines."""
    section = path.read_text("utf-8").partition("\n## TensorFlow")[2].partition("\n## ")[0]
    first, *recipes = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    shared: dict[str, Any] = {}
    first = first.replace('tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])', "the_strategy")
    assert "strategy = the_strategy\n" in first
    shared["the_strategy"] = strategy()
    exec(compile(first, "the first block", "exec"), shared)
    for recipe in recipes:
        names = dict(shared)
        exec(compile(recipe, recipe.partition("\n")[0], "exec"), names)
        np.testing.assert_allclose(names["model"].get_weights()[0], shared["expected"].get_weights()[0], rtol=1e-5, atol=1e-6)
    assert len(recipes) >= 3


def logical_devices(count: int) -> list[str]:
    devices = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(devices[0], [tf.config.LogicalDeviceConfiguration()] * count)
    return [f"CPU:{i}" for i in range(count)]


def four_replicas() -> None:
    tensors.check(tf.distribute.MirroredStrategy(logical_devices(4)))


def apart(check: Callable[[], None]) -> Callable[[], None]:
    """Run a check in a copy of this process, which has not used TensorFlow yet; return what waits for it."""
    file = tempfile.TemporaryFile("w+")  # noqa: SIM115 - the two processes read and write it
    child = os.fork()
    if not child:
        file.write(failure(check))
        file.flush()
        os._exit(0)

    def wait() -> None:
        assert os.waitpid(child, 0)[1] == 0
        file.seek(0)
        assert not (text := file.read()), text

    return wait


def main() -> None:
    four = apart(four_replicas)
    warnings.simplefilter("error")
    logical_devices(2)
    found = {check.__name__: check for check in CHECKS}
    found |= {"four_replicas": four, "the_recipes": lambda: run_recipes(Path(sys.argv[2]))}
    failures = {name: failure(check) for name, check in found.items()}
    Path(sys.argv[1]).write_text(json.dumps(failures), "utf-8")


if __name__ == "__main__":
    main()
