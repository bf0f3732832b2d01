import torch
from torch import nn


class GPTTrainer:
    def __init__(self, model, accumulate=4, max_norm=1.0, lr=3e-4):
        self.model = model
        self.accumulate = accumulate
        self.max_norm = max_norm
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.updates = 0

    def _update(self):
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        return norm

    def train_epoch(self, batches):
        pending = 0
        for ids in batches:
            logits = self.model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            (loss / self.accumulate).backward()
            pending += 1
            if pending == self.accumulate:
                self._update()
                pending = 0
        if pending:
            self._update()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
    trainer = GPTTrainer(model)
    print(trainer.train_epoch([torch.randint(0, 20, (4, 9)) for _ in range(10)]), trainer.updates)
