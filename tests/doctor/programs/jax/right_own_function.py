"""Right: a clip of the gradients, then a chain that has none, in a compiled step."""

import optax
from start import train

import gradclip
from gradclip.dialects import torch

train(
    optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.01)),
    lambda grads: gradclip.clip(grads, torch.clip_grad_norm(1.0)).grads,
)
