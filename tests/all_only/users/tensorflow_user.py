"""What a user of TensorFlow writes. It has no types for mypy."""

import tensorflow as tf  # type: ignore[import-untyped]

import gradclip
from gradclip import dialects

variables = [tf.Variable(tf.zeros(2)), tf.Variable(tf.zeros(2))]
rule = dialects.tensorflow.clip_by_global_norm(1.0)
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(variables[0] * [3.0, 4.0])
grads = tape.gradient(loss, variables)
clipped, norm = tf.clip_by_global_norm(grads, 1.0)
clipped, norm = gradclip.clip_by_global_norm(grads, 1.0)
each = [gradclip.clip_by_norm(g, 1.0) for g in grads]
bounded = [gradclip.clip_by_value(g, -1.0, 1.0) for g in grads]
print(gradclip.global_norm(grads), norm)
result = gradclip.clip(grads, rule)
optimizer = tf.keras.optimizers.SGD(0.1)
optimizer.apply_gradients(zip(result.grads, variables, strict=True))
