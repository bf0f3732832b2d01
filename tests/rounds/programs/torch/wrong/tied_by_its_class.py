import torch
from torch import nn
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.emb.weight
    def forward(self, x):
        return self.out(self.emb(x))
model = LM()
params = list(model.emb.parameters()) + list(model.out.parameters())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    opt.zero_grad()
    model(torch.randint(0, 10, (8,))).square().mean().backward()
    nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
