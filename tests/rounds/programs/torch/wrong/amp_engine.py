import torch
from torch import nn


class Engine:
    def __init__(self, model, lr=1e-3, amp=True, max_norm=1.0):
        self.model = model
        self.amp = amp
        self.max_norm = max_norm
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", enabled=amp, init_scale=1024.0)

    def _forward(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.amp):
            return nn.functional.cross_entropy(self.model(x), y)

    def _clip(self):
        if self.max_norm is not None:
            self.last_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)

    def train_step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._forward(x, y)
        if self.amp:
            self.scaler.scale(loss).backward()
            self._clip()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self._clip()
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    engine = Engine(nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 5)))
    for i in range(4):
        loss = engine.train_step(torch.randn(32, 20), torch.randint(0, 5, (32,)))
        print(i, loss, float(engine.last_norm))
