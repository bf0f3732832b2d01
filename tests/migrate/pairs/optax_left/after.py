import optax

injected = optax.inject_hyperparams(optax.clip_by_global_norm)(max_norm=1.0)
late = optax.chain(optax.adam(1e-3), optax.clip_by_global_norm(1.0))
sums, count = optax.per_example_global_norm_clip(grads, 1.0)
norm = optax.global_norm(updates)
private = optax.contrib.dpsgd(0.1, 1.0, 0.1, 0)
