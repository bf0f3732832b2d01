import optax

late = optax.named_chain(("optimizer", optax.adam(1e-3)), ("clip", optax.clip(1.0)))
