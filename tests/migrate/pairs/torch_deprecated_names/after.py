import torch
from torch.nn.utils import clip_grad_norm_, weight_norm


def train(model):
    clip_grad_norm_(model.parameters(), 0.25)
    torch.nn.utils.clip_grad_norm_(weight_norm(model).parameters(), 0.25)
