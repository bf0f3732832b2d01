"""The clip comes after the optimizer, in a compiled step."""

import optax
from start import train

train(optax.chain(optax.adam(1.0), optax.clip_by_global_norm(1.0)))  # <- GD110
