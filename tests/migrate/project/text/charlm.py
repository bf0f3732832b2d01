"""A character language model in JAX."""

import optax


def make_optimizer(learning_rate, max_norm=1.0):
    return optax.chain(
        optax.clip_by_global_norm(max_norm),
        optax.adamw(learning_rate),
    )
