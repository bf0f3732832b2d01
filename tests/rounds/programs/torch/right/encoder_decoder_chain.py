import itertools

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

torch.manual_seed(0)
encoder = nn.GRU(5, 16, batch_first=True)
decoder = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))


def trainable():
    return itertools.chain(encoder.parameters(), decoder.parameters())


optimizer = torch.optim.Adam(trainable(), lr=1e-2)

for step in range(5):
    x = torch.randn(12, 7, 5)
    _, h = encoder(x)
    loss = nn.functional.mse_loss(decoder(h[-1]), x.sum(1))
    optimizer.zero_grad()
    loss.backward()
    clip_grad_norm_(trainable(), 1.0)
    optimizer.step()
    print(step, loss.item())
