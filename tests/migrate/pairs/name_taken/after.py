import gradclip as gradclip_
import optax
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import optax as optax_rules

gradclip = 1.0


def clip(model):
    gradclip_.clip_grad_norm_(model.parameters(), gradclip)
    return optax.chain(gradient_transformation(
        optax_rules.clip(gradclip)
    ), optax.sgd(0.1))
