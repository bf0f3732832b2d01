"""Wrong uses of TensorFlow and Keras. pyright has types: stubs that it brings, and Keras's code. mypy has none."""

import keras  # type: ignore[import-untyped]
import tensorflow as tf  # type: ignore[import-untyped]

import gradclip
from gradclip import dialects
from gradclip.backends.keras import clipped

rule = dialects.tensorflow.clip_by_global_norm(1.0)
gradient = tf.constant([3.0, 4.0])

gradclip.clip_by_norm(gradient, rule)  # error
gradclip.clip_by_global_norm([gradient], rule)  # error
gradclip.clip_by_global_norm(gradient, 1.0)  # error: pyright
print(gradclip.clip([gradient], rule).gradients)  # error
print(gradclip.clip([gradient], rule).grads["w"])  # error
print(gradclip.clip_by_global_norm([gradient], 1.0)[0].shape)  # error: pyright
clipped(keras.optimizers.SGD(1.0), 1.0)  # error
clipped(gradient, dialects.keras.clipnorm(1.0))  # error: pyright
clipped(gradient, dialects.keras.clipnorm(1.0), record=True)  # error: pyright
clipped([gradient], dialects.keras.clipnorm(1.0))  # error: pyright

# Keras's model passes for anything, because one of its base classes is chosen by the backend; so does an attribute of a tensor
model = keras.Sequential([keras.layers.Dense(1)])
of_keras: int = model
of_tensorflow: int = gradient.shpae
gradclip.clip(model, rule)
print(gradclip.clip_by_norm(gradient, 1.0).shpae)
