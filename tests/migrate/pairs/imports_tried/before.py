import os

try:
    import torch
except ImportError:
    torch = None
try:
    from torch.nn.utils import clip_grad_norm_
except ImportError:
    from torch.nn.utils import clip_grad_norm as clip_grad_norm_


def clip(model):
    if torch is not None:
        torch.nn.utils.clip_grad_value_(model.parameters(), float(os.environ["CLIP"]))
    clip_grad_norm_(model.parameters(), 1.0)
