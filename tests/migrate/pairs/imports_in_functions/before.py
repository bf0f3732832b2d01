"""No import at the top."""
def clip(model):
    from torch.nn.utils import clip_grad_norm_
    clip_grad_norm_(model.parameters(), 1.0)


def clip_by_value(model):
    import torch; from torch.nn import utils
    if model: from torch.nn.utils import clip_grad_value_; clip_grad_value_(model.parameters(), torch.pi)


class Trainer:
    def transformation(self):
        import optax

        return optax.clip_by_global_norm(1.0)
