"""No import at the top."""

import gradclip
from gradclip.dialects import optax as optax_rules

def clip(model):
    gradclip.clip_grad_norm_(model.parameters(), 1.0)


def clip_by_value(model):
    import torch; from torch.nn import utils
    if model: gradclip.clip_grad_value_(model.parameters(), torch.pi)


class Trainer:
    def transformation(self):
        import optax
        from gradclip.backends.jax import gradient_transformation

        return gradient_transformation(optax_rules.clip_by_global_norm(1.0))
