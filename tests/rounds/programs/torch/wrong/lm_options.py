import argparse

import torch
from torch import nn


def get_args():
    parser = argparse.ArgumentParser(description="tiny language model")
    parser.add_argument("--emb", type=int, default=16, help="size of the embeddings")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=0.0, help="gradient clipping (0 = off)")
    parser.add_argument("--wd", type=float, default=0.0, help="weight decay (0 = off)")
    parser.add_argument("--steps", type=int, default=6)
    return parser.parse_args()


class LM(nn.Module):
    def __init__(self, vocab, emb):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.lstm = nn.LSTM(emb, emb, batch_first=True)
        self.head = nn.Linear(emb, vocab)

    def forward(self, x):
        return self.head(self.lstm(self.emb(x))[0])


def main():
    args = get_args()
    torch.manual_seed(0)
    model = LM(30, args.emb)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, weight_decay=args.wd)
    data = torch.randint(0, 30, (4, 21))
    for step in range(args.steps):
        optimizer.zero_grad()
        logits = model(data[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), data[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        print(f"{step} {loss.item():.5f}")


main()
