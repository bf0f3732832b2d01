import torch
from torch import nn

torch.manual_seed(42)


class Config:
    accumulation_steps = 4
    max_grad_norm = 0.1
    learning_rate = 5e-3
    batch_size = 8


def make_batches(n):
    for _ in range(n):
        yield torch.randint(0, 50, (Config.batch_size, 12)), torch.randint(0, 2, (Config.batch_size,))


model = nn.Sequential(
    nn.Embedding(50, 16),
    nn.Flatten(),
    nn.Linear(16 * 12, 32),
    nn.ReLU(),
    nn.Linear(32, 2),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=Config.learning_rate)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)

running = 0.0
for i, (ids, labels) in enumerate(make_batches(12)):
    logits = model(ids)
    loss = nn.functional.cross_entropy(logits, labels) / Config.accumulation_steps
    loss.backward()
    running += loss.item()
    if (i + 1) % Config.accumulation_steps == 0:
        nn.utils.clip_grad_norm_(model.parameters(), Config.max_grad_norm)
        scheduler.step()
        print(f"step {i + 1}: loss {running:.4f}")
        running = 0.0
    optimizer.step()
    optimizer.zero_grad()
