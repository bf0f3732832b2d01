"""TensorFlow's MirroredStrategy: a classifier of handwritten digits on two replicas, clipped after the sum of their gradients.

    python examples/tensorflow_mirrored.py

Without accelerators, two logical devices on one CPU are the replicas.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import gradclip

CLIP_NORM, RATE, BATCH = 0.5, 1.0, 128


def devices() -> list[str]:
    """The accelerators, or two logical devices of a CPU."""
    if tf.config.list_physical_devices("GPU"):
        return [device.name.removeprefix("/physical_device:") for device in tf.config.list_physical_devices("GPU")]
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return ["CPU:0", "CPU:1"]


def main(steps: int = 200) -> list[float]:
    """Train, and return the loss of each step."""
    strategy = tf.distribute.MirroredStrategy(devices())
    generator = np.random.default_rng(0)
    with strategy.scope():
        shapes = ((64, 32), (32,), (32, 10), (10,))
        values = [generator.normal(scale=0.1, size=shape).astype("float32") for shape in shapes]
        # each replica assigns the same value to its copy
        variables = [tf.Variable(value, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA) for value in values]

    def replica_step(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(images @ variables[0] + variables[1])
            logits = hidden @ variables[2] + variables[3]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / BATCH  # the batch of all replicas, so the sum of the gradients is right
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, variables))
        gradients, norm = gradclip.clip_by_global_norm(gradients, CLIP_NORM)  # after the sum: the same on all replicas
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(RATE * gradient)
        return loss, norm

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        losses, norms = strategy.run(replica_step, args=(images, labels))
        reduce = strategy.reduce
        return reduce("SUM", losses, axis=None), reduce("MEAN", norms, axis=None)

    digits = load_digits()
    images, labels = (digits.data / 16).astype("float32"), digits.target
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000, seed=0).repeat().batch(BATCH, drop_remainder=True)
    trained = []
    for i, (some_images, some_labels) in zip(range(steps), strategy.experimental_distribute_dataset(data), strict=False):
        loss, norm = step(some_images, some_labels)
        trained.append(float(loss))
        if i % 50 == 0:
            print(f"{strategy.num_replicas_in_sync} replicas  step {i:3}  loss {float(loss):.3f}  norm {float(norm):.3f}")
    print(f"first loss {trained[0]:.3f}, last loss {trained[-1]:.3f}")
    return trained


if __name__ == "__main__":
    main()
