"""Right: a clip whose limit is a hyperparameter, then the optimizer, in a compiled step."""

import optax
from start import train

train(optax.chain(optax.inject_hyperparams(optax.clip_by_global_norm)(max_norm=1.0), optax.adam(0.01)))
