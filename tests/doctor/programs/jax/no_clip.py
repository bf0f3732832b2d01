"""Nothing clips, in a compiled step."""

import optax
from start import train

train(optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.01)))  # <- GD101
