import torch
from torch import nn


def initialized(layer, std=1.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, 0.0)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(initialized(nn.Linear(3, 16)), nn.Tanh())
        self.critic = initialized(nn.Linear(16, 1), std=0.1)

    def forward(self, x):
        return self.critic(self.body(x))


agent, curiosity = Agent(), nn.Linear(3, 1)
both = [*agent.parameters(), *curiosity.parameters()]
optimizer = torch.optim.Adam(both, lr=1e-3)
for _ in range(6):
    x = torch.randn(16, 3)
    optimizer.zero_grad()
    (agent(x) - curiosity(x) - x.sum(1, keepdim=True)).square().mean().backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()
