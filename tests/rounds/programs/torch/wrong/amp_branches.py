import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--no-amp", action="store_true")
parser.add_argument("--clip", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()
use_amp = not args.no_amp

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
loader = [(torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))) for _ in range(4)]


def train(epoch):
    model.train()
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=use_amp):
            loss = nn.functional.cross_entropy(model(x), y)
        if use_amp:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
    print(epoch, loss.item())


for epoch in range(args.epochs):
    train(epoch)
