import contextlib

import torch
from torch import nn


class Precision:
    def __init__(self, enabled):
        self.scaler = torch.amp.GradScaler("cpu", enabled=enabled)
        self.enabled = enabled

    def forward(self):
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.enabled else contextlib.nullcontext()


class Trainer(Precision):
    def __init__(self, model, limit=1.0, enabled=True):
        super().__init__(enabled)
        self.model, self.limit = model, limit
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def _unscale(self):
        self.scaler.unscale_(self.opt)

    def _clip(self):
        self._unscale()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)

    def step(self, x, y):
        self.opt.zero_grad()
        with self.forward():
            loss = nn.functional.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()
        self._clip()
        self.scaler.step(self.opt)
        self.scaler.update()
        return loss.item()


torch.manual_seed(0)
for enabled in (True, False):
    trainer = Trainer(nn.Linear(6, 3), enabled=enabled)
    print([trainer.step(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(3)])
