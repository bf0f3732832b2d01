from torch.nn.utils import clip_grad_norm_
from torch.nn.utils import clip_grad_value_  # noqa: F401
from torch.nn.utils import get_total_norm as get_total_norm
from torch.nn.utils import clip_grads_with_norm_, vector_to_parameters

__all__ = ["clip_grad_norm_"]


def clip(model, grads, norm):
    clip_grad_norm_(model.parameters(), 1.0)
    clip_grad_value_(model.parameters(), 1.0)
    clip_grads_with_norm_(model.parameters(), 1.0, norm)
    return get_total_norm(grads)
