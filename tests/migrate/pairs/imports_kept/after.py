import gradclip
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils import clip_grad_value_  # noqa: F401
from torch.nn.utils import get_total_norm as get_total_norm
from torch.nn.utils import vector_to_parameters

__all__ = ["clip_grad_norm_"]


def clip(model, grads, norm):
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    gradclip.clip_grad_value_(model.parameters(), 1.0)
    gradclip.clip_grads_with_norm_(model.parameters(), 1.0, norm)
    return gradclip.get_total_norm(grads)
