import torch
from torch import nn
def train(model, loader):
    decay, no_decay, norms = [], [], []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        if "bias" in name:
            no_decay.append(p)
        elif "norm" in name:
            norms.append(p)
        else:
            decay.append(p)
    opt = torch.optim.AdamW([{"params": decay}, {"params": no_decay}, {"params": norms}], lr=1e-3)
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(decay + no_decay + norms, 1.0)
        opt.step()
        opt.zero_grad()
