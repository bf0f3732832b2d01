import argparse

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--max_global_norm", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=4)
args = parser.parse_args()

paddle.seed(0)


class TextClassifier(nn.Layer):
    def __init__(self, vocab=50, dim=16, classes=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, dim)
        self.fc = nn.Linear(dim, classes)

    def forward(self, ids):
        _, (h, _) = self.rnn(self.emb(ids))
        return self.fc(h[-1])


model = TextClassifier()
grad_clip = paddle.nn.ClipGradByNorm(clip_norm=args.max_global_norm)
optimizer = paddle.optimizer.SGD(args.lr, parameters=model.parameters(), grad_clip=grad_clip)

for step in range(args.steps):
    ids = paddle.randint(0, 50, [16, 7])
    loss = 10 * F.cross_entropy(model(ids), ids[:, 0] % 3)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print(step, float(loss))
