import torch
from torch import nn


class Trainer:
    def __init__(self, model, lr=1e-2, clip=1.0):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.clip = clip
        self.skipped = 0

    def step(self, batch):
        x, y = batch
        loss = nn.functional.l1_loss(self.model(x), y)
        loss.backward()
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        if not torch.isfinite(grad_norm):
            self.skipped += 1
            return None
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def fit(self, batches):
        for i, batch in enumerate(batches):
            loss = self.step(batch)
            print(i, "skipped" if loss is None else f"{loss:.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    batches = [(torch.randn(16, 3), torch.randn(16, 1)) for _ in range(6)]
    batches[2][0][0, 0] = float("nan")
    Trainer(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))).fit(batches)
