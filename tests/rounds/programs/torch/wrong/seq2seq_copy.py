import random

import torch
import torch.nn as nn
from torch import optim

random.seed(0)
torch.manual_seed(0)
CLIP = 0.5
HIDDEN = 24


class Encoder(nn.Module):
    def __init__(self, n_words):
        super().__init__()
        self.emb = nn.Embedding(n_words, HIDDEN)
        self.gru = nn.GRU(HIDDEN, HIDDEN)

    def forward(self, seq):
        return self.gru(self.emb(seq))[1]


class Decoder(nn.Module):
    def __init__(self, n_words):
        super().__init__()
        self.emb = nn.Embedding(n_words, HIDDEN)
        self.gru = nn.GRU(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, n_words)

    def forward(self, seq, h):
        y, h = self.gru(self.emb(seq), h)
        return self.out(y), h


encoder, decoder = Encoder(12), Decoder(12)
optimizer = optim.Adam(list(encoder.parameters()) + list(decoder.parameters()), lr=1e-2)


def train_pair(src, tgt):
    optimizer.zero_grad()
    h = encoder(src)
    logits, _ = decoder(torch.cat([torch.zeros(1, 1, dtype=torch.long), tgt[:-1]]), h)
    loss = nn.functional.cross_entropy(logits.view(-1, 12), tgt.view(-1), reduction="sum")
    loss.backward()
    torch.nn.utils.clip_grad_norm_(decoder.parameters(), CLIP)
    optimizer.step()
    return loss.item() / len(tgt)


def main():
    for it in range(6):
        seq = torch.tensor([random.randrange(12) for _ in range(7)]).unsqueeze(1)
        print(it, train_pair(seq, seq))


if __name__ == "__main__":
    main()
