import gradclip.backends.jax
import jax
import optax

schedule = optax.cosine_decay_schedule(1e-3, 100)
optimizer = optax.chain(
    gradclip.backends.jax.gradient_transformation(gradclip.dialects.optax.clip_by_global_norm(config.max_norm)),  # first
    optax.adamw(schedule, weight_decay=1e-4),
)
optimizer = optax.chain(gradclip.backends.jax.gradient_transformation(gradclip.dialects.optax.clip(1.0)), gradclip.backends.jax.gradient_transformation(gradclip.dialects.optax.clip_by_block_rms(1.0)), optax.sgd(0.1))
optimizer = optax.chain(optax.masked(gradclip.backends.jax.gradient_transformation(gradclip.dialects.optax.clip(max_delta=0.1)), mask), optax.sgd(0.1))
optimizer = optax.named_chain(("clip", gradclip.backends.jax.gradient_transformation(gradclip.dialects.optax.adaptive_grad_clip(0.01, eps=1e-3))), ("sgd", optax.sgd(0.1)))
clip = gradclip.backends.jax.gradient_transformation(gradclip.dialects.optax.clip_by_global_norm(max_norm=1.0))
optimizer = optax.MultiSteps(optax.chain(clip, optax.adam(0.1)), 4)
