"""Right: a clip, then the optimizer, in a compiled step."""

import optax
from start import train

train(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01)))
