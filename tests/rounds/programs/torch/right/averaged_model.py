import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
def train(model, loader):
    averaged = AveragedModel(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        averaged.update_parameters(model)
