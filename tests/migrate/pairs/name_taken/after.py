import gradclip as gradclip_
import gradclip.backends.jax as gradclip_jax
import optax

gradclip = 1.0


def clip(model):
    gradclip_.clip_grad_norm_(model.parameters(), gradclip)
    return optax.chain(gradclip_jax.gradient_transformation(gradclip_.dialects.optax.clip(gradclip)), optax.sgd(0.1))
