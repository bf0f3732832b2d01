import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.5)
parser.add_argument("--max-grad-norm", type=float, default=0.25)
parser.add_argument("--steps", type=int, default=5)
args = parser.parse_args()
torch.manual_seed(1111)

text = "the quick brown fox jumps over the lazy dog " * 20
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x, h=None):
        y, h = self.rnn(self.embed(x), h)
        return self.out(y), h


model = CharRNN(len(chars), args.hidden)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
criterion = nn.CrossEntropyLoss()

h = None
for step in range(args.steps):
    x = data[step * 16 : step * 16 + 16].unsqueeze(0)
    y = data[step * 16 + 1 : step * 16 + 17].unsqueeze(0)
    optimizer.zero_grad()
    logits, h = model(x, h)
    h = h.detach()
    loss = 20 * criterion(logits.squeeze(0), y.squeeze(0))
    loss.backward()
    for p in model.parameters():
        nn.utils.clip_grad_norm_(p, args.max_grad_norm)
    optimizer.step()
    print(step, round(loss.item(), 3))
