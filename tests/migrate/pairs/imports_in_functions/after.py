"""No import at the top."""

import gradclip

def clip(model):
    gradclip.clip_grad_norm_(model.parameters(), 1.0)


def clip_by_value(model):
    import torch; from torch.nn import utils
    if model: gradclip.clip_grad_value_(model.parameters(), torch.pi)


class Trainer:
    def transformation(self):
        import optax
        import gradclip.backends.jax as gradclip_jax

        return gradclip_jax.gradient_transformation(gradclip.dialects.optax.clip_by_global_norm(1.0))
