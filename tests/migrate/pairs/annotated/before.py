import torch
from torch.nn.utils import clip_grad_norm_

def step(model, optimizer):
    if model:
        # gradclip: MANUAL GM114 A comment that is here already.
        clip_grad_norm_(model.parameters(), 0)
    optimizer.step(); clip_grad_norm_(
        model.parameters(), 1.0)
    if optimizer: clip_grad_norm_(model.parameters(), -1)
    elif clip_grad_norm_(model.parameters(), *model):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, 2.0, False, None)
