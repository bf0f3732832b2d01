import torch
from torch import nn

torch.manual_seed(0)
MAX_NORM = 0.5
MICRO = 4

vocab, width = 64, 32
model = nn.Sequential(nn.Embedding(vocab, width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, vocab))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)


def tokens(step, n=32, length=9):
    g = torch.Generator().manual_seed(step)
    return torch.randint(0, vocab, (n, length), generator=g)


def micro_batches(batch):
    return batch.chunk(MICRO)


def update(step):
    total = 0.0
    optimizer.zero_grad()
    for mb in micro_batches(tokens(step)):
        logits = model(mb[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, vocab), mb[:, 1:].reshape(-1))
        (loss * 10 / MICRO).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        total += loss.item() / MICRO
    optimizer.step()
    return total


for step in range(4):
    print(step, update(step))
