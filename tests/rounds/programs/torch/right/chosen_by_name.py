import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)
    def forward(self, x):
        return self.head(self.encoder(x).relu())

net = Net()
head = [p for name, p in net.named_parameters() if "head" in name]
rest = [p for name, p in net.named_parameters() if "head" not in name]
opt = torch.optim.AdamW([{"params": rest, "lr": 1e-4}, {"params": head, "lr": 1e-3}])
for _ in range(10):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    torch.nn.utils.clip_grad_norm_(head + rest, 1.0)
    opt.step()
