import torch
import torch.nn as nn


def train(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    nn.utils.clip_grad_norm_( model.parameters(), max_norm=0.25 )
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
