"""gradclip's link comes after the optimizer, in a compiled step."""

import optax
from start import train

from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import torch

train(optax.chain(optax.adam(1.0), gradient_transformation(torch.clip_grad_norm(1.0))))  # <- GD110
