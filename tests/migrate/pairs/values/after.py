import functools

import optax
import tensorflow as tf
import torch
from gradclip.backends.keras import clipped
from gradclip.dialects import keras as keras_rules
from torch.nn.utils import clip_grad_norm_

clip = functools.partial(clip_grad_norm_, max_norm=1.0)
named = torch.nn.utils.clip_grad_value_
named(model.parameters(), 1.0)
looked_up = getattr(torch.nn.utils, "clip_grad_norm_")
norms = list(map(tf.clip_by_norm, grads, limits))
keras = tf.keras
optimizer = clipped(keras.optimizers.SGD(), keras_rules.clipnorm(1.0))
clip_grad_norm_(model.parameters(), *limits)
clip_grad_norm_(model.parameters(), **settings)
clip_grad_norm_(model.parameters())
clip_grad_norm_(model.parameters(), 1.0, limit=2.0)
