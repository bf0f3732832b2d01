import argparse
import torch
from torch import nn
def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lr", type=float, default=0.1)
    ap.add_argument("--max-grad-norm", type=float, default=1.0, help="clip gradients at this norm")
    return ap.parse_args()
def main():
    args = parse()
    model = nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    for _ in range(10):
        opt.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
        opt.step()
main()
