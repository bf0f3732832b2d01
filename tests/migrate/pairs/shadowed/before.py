import torch
import torch.nn as nn
from project.optim import clip_by_global_norm
from torch.nn.utils import clip_grad_norm_

from .clipping import clip_grad_value_


def clip_by_norm(t, limit):
    return t * limit


def train(model, nn, clip_grad_norm_):
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    clip_grad_norm_(model.parameters(), 1.0)


def again(model):
    torch = load()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    clip_grad_value_(model.parameters(), 1.0)
    clip_by_norm(model, 1.0)
    clip_by_global_norm(grads, 1.0)


def either(model, fast):
    if fast:
        from fast import clip_grad_norm_
    else:
        from torch.nn.utils import clip_grad_norm_
    clip_grad_norm_(model.parameters(), 1.0)


nn.utils.clip_grad_norm_(model.parameters(), 1.0)
