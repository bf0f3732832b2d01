import torch
from torch import nn


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 8)
        self.log_std = nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return self.body(x) * self.log_std.exp()


agent = Agent()
optimizer = torch.optim.Adam([{"params": agent.body.parameters()}, {"params": [agent.log_std], "lr": 1e-3}])
for _ in range(6):
    optimizer.zero_grad()
    agent(torch.randn(16, 3)).square().mean().backward()
    nn.utils.clip_grad_norm_([*agent.body.parameters(), agent.log_std], 1.0)
    optimizer.step()
