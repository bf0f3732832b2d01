import torch
from torch import nn


def mlp(inputs, outputs, activation):
    return nn.Sequential(nn.Linear(inputs, 16), activation, nn.Linear(16, outputs))


actor, critic = mlp(3, 2, nn.Tanh()), mlp(3, 1, nn.ReLU())
of_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)

for _ in range(6):
    x = torch.randn(16, 3)
    of_critic.zero_grad()
    (critic(x) - x.sum(1, keepdim=True)).square().mean().backward()
    nn.utils.clip_grad_norm_(critic.parameters(), 0.5)
    of_critic.step()

    of_actor.zero_grad()
    (actor(x) * critic(x).detach()).mean().backward()
    nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
    of_actor.step()
