import argparse

import torch
from torch import nn


def parse(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--clip", type=float, default=0, help="0 disables it")
    ap.add_argument("--steps", type=int, default=5)
    ap.add_argument("--lr", type=float, default=0.1)
    return ap.parse_args(argv)


def step(model, opt, batch, args):
    x, y = batch
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    if args.clip > 0:
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    opt.step()
    return loss


def main(args):
    torch.manual_seed(0)
    model = nn.Linear(10, 3)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    batch = torch.randn(40, 10), torch.randint(0, 3, (40,))
    for _ in range(args.steps):
        loss = step(model, opt, batch, args)
    print(loss.item())


if __name__ == "__main__":
    main(parse())
