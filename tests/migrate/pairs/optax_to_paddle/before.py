import optax

optimizer = optax.chain(optax.clip_by_global_norm(max_norm), optax.adam(0.1))
optimizer = optax.chain(optax.adaptive_grad_clip(0.01, eps=1e-4), optax.adam(0.1))
