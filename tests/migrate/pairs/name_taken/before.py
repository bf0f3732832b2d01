import optax
import torch

gradclip = 1.0


def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), gradclip)
    return optax.chain(optax.clip(gradclip), optax.sgd(0.1))
