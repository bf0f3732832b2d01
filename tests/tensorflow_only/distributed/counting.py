"""Counts collectives and bytes of a step on 2 to 4 replicas, with no clip, gradclip's and the native, in traced graphs.

``python -m tensorflow_only.distributed.counting`` prints the table of ``docs/collectives.md``. Nothing runs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

import gradclip
from gradclip.backends.keras import clipped
from gradclip.dialects import keras as dialect

SIZES = (2, 4)
COUNT, LIMIT = 20, 0.1
SUM = tf.distribute.ReduceOp.SUM
KINDS = ("Collective", "Nccl")
Clip = Callable[[list[tf.Tensor]], list[tf.Tensor]]

#: no clip, gradclip's, the native's
CLIPS: tuple[Clip, ...] = (
    list,
    lambda grads: gradclip.clip_by_global_norm(grads, LIMIT)[0],
    lambda grads: tf.clip_by_global_norm(grads, LIMIT)[0],
)
OPTIMIZERS: tuple[Callable[[], Any], ...] = (
    lambda: keras.optimizers.SGD(),
    lambda: clipped(keras.optimizers.SGD(), dialect.global_clipnorm(LIMIT)),
    lambda: keras.optimizers.SGD(global_clipnorm=LIMIT),
)


def gradients() -> list[tf.Tensor]:
    """Return the gradients of one replica."""
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    return [tf.fill([4], tf.cast(number, tf.float32) + i) for i in range(COUNT)]


def in_the_replica(strategy: tf.distribute.Strategy, clip: Clip) -> Callable[[], Any]:
    return lambda: strategy.run(lambda: clip(tf.distribute.get_replica_context().all_reduce(SUM, gradients())))


def after_the_replicas(strategy: tf.distribute.Strategy, clip: Clip) -> Callable[[], Any]:
    return lambda: clip([strategy.reduce(SUM, g, axis=None) for g in strategy.run(gradients)])


def in_keras(strategy: tf.distribute.Strategy, make: Callable[[], Any]) -> Callable[[], Any]:
    with strategy.scope():
        variables = [keras.Variable(tf.zeros([4])) for _ in range(COUNT)]
        optimizer = make()
        optimizer.build(variables)
    return lambda: strategy.run(lambda: optimizer.apply(gradients(), variables))


#: name -> (a step, the clips to count in it)
STEPS: dict[str, tuple[Callable[..., Callable[[], Any]], tuple[Callable[..., Any], ...]]] = {
    "in the replica, after `all_reduce`": (in_the_replica, CLIPS),
    "after the replicas, and `strategy.reduce` of each gradient": (after_the_replicas, CLIPS),
    "Keras": (in_keras, OPTIMIZERS),
}


def counted(step: Callable[[], Any]) -> str:
    """Return the collectives of the first replica, with the bytes that it sends."""
    graph = tf.function(step, autograph=False).get_concrete_function().graph
    inner = [node.op for function in graph.as_graph_def().library.function for node in function.node_def]
    assert not any(kind.startswith(KINDS) for kind in inner), "a collective in a branch"
    operations = [op for op in graph.get_operations() if _is_collective(op)]
    first = [op for op in operations if op.device == operations[0].device]
    size = sum(op.inputs[0].shape.num_elements() * op.inputs[0].dtype.size for op in first)
    return f"{len(first)} of {size} B in all" if len(first) > 1 else f"{len(first)} of {size} B"


def _is_collective(op: tf.Operation) -> bool:
    """Whether an operation is a collective, or a sum over several devices."""
    return op.type.startswith(KINDS) or (op.type == "AddN" and len({x.op.device for x in op.inputs}) > 1)


def table() -> list[str]:
    """Return the lines of the table."""
    lines = ["| where | replicas | without a clip | gradclip | native |", "| --- | --- | --- | --- | --- |"]
    for name, (step, clips) in STEPS.items():
        rows: dict[tuple[str, ...], list[int]] = {}
        for size in SIZES:
            strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(size)])
            rows.setdefault(tuple(counted(step(strategy, clip)) for clip in clips), []).append(size)
        for costs, sizes in rows.items():
            counts = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
            lines.append(f"| {name} | {counts} | {' | '.join(costs)} |")
    return lines


if __name__ == "__main__":
    warnings.simplefilter("error", gradclip.core.errors.GradclipWarning)
    devices = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(devices[0], [tf.config.LogicalDeviceConfiguration()] * max(SIZES))
    print("\n".join(table()))
