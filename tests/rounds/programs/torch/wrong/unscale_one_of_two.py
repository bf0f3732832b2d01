"""Encoder and head with a learning rate each, under mixed precision."""

import torch
from torch import nn


class Learner:
    def __init__(self):
        self.encoder, self.head = nn.Linear(12, 8), nn.Linear(8, 3)
        self.opt_encoder = torch.optim.AdamW(self.encoder.parameters(), lr=1e-4)
        self.opt_head = torch.optim.AdamW(self.head.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu")

    def step(self, x, y):
        self.opt_encoder.zero_grad()
        self.opt_head.zero_grad()
        loss = nn.functional.cross_entropy(self.head(self.encoder(x).relu()), y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt_head)
        nn.utils.clip_grad_norm_(self.encoder.parameters(), 1.0)
        nn.utils.clip_grad_norm_(self.head.parameters(), 2.0)
        self.scaler.step(self.opt_encoder)
        self.scaler.step(self.opt_head)
        self.scaler.update()
        return loss.item()


torch.manual_seed(0)
learner = Learner()
for _ in range(10):
    print(learner.step(torch.randn(8, 12), torch.randint(0, 3, (8,))))
