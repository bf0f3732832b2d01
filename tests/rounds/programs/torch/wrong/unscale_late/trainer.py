import torch
from torch import nn


class Trainer:
    def __init__(self, model, max_norm):
        self.model, self.max_norm = model, max_norm
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)

    def backward(self, x, y):
        self.opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()
        return loss.item()

    def unscale(self):
        self.scaler.unscale_(self.opt)

    def clip_gradients(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)

    def step(self):
        self.scaler.step(self.opt)
        self.scaler.update()
