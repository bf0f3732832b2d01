"""Right: gradclip's functions."""

import keras
from start import regression

import gradclip
from gradclip.dialects.tensorflow import clip_by_global_norm

model, gradients = regression()
optimizer = keras.optimizers.SGD(0.01)

for step in range(6):
    if step % 2:
        grads, norm = gradclip.clip_by_global_norm(gradients(), 1.0)
    else:
        grads = gradclip.clip(gradients(), clip_by_global_norm(1.0)).grads
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
