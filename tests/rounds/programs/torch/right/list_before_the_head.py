import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 10)
    def forward(self, x):
        return self.head(self.body(x).relu())

model = Net()
model.head = nn.Linear(8, 2)
params = list(model.parameters())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    nn.utils.clip_grad_norm_(params, 0.1)
    optimizer.step()
