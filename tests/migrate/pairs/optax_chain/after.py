import jax
import optax
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import optax as optax_rules

schedule = optax.cosine_decay_schedule(1e-3, 100)
optimizer = optax.chain(
    gradient_transformation(optax_rules.clip_by_global_norm(config.max_norm)),  # first
    optax.adamw(schedule, weight_decay=1e-4),
)
optimizer = optax.chain(gradient_transformation(
    optax_rules.clip(1.0)
), gradient_transformation(
    optax_rules.clip_by_block_rms(1.0)
), optax.sgd(0.1))
optimizer = optax.chain(optax.masked(gradient_transformation(
    optax_rules.clip(max_delta=0.1)
), mask), optax.sgd(0.1))
optimizer = optax.named_chain(("clip", gradient_transformation(
    optax_rules.adaptive_grad_clip(0.01, eps=1e-3)
)), ("sgd", optax.sgd(0.1)))
clip = gradient_transformation(optax_rules.clip_by_global_norm(max_norm=1.0))
optimizer = optax.MultiSteps(optax.chain(clip, optax.adam(0.1)), 4)
