from functools import partial

from torch.nn.utils import (
    clip_grad_norm_,
    clip_grad_norm,  # deprecated
    weight_norm,
)

CLIP = partial(clip_grad_norm, max_norm=1.0)


def train(model):
    clip_grad_norm_(weight_norm(model).parameters(), 0.25)
