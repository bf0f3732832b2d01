"""An actor and a critic, stepped together at the end."""

import torch
from torch import nn

torch.manual_seed(0)
actor, critic = nn.Linear(6, 3), nn.Linear(6, 1)
opt_a = torch.optim.Adam(actor.parameters(), lr=3e-4)
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)

for _ in range(12):
    obs, target = torch.randn(16, 6), torch.randn(16)
    value = critic(obs).squeeze(-1)
    dist = torch.distributions.Categorical(logits=actor(obs))
    action = dist.sample()
    opt_a.zero_grad()
    opt_c.zero_grad()
    (-(dist.log_prob(action) * (target - value.detach())).mean()).backward()
    nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
    (value - target).square().mean().backward()
    nn.utils.clip_grad_norm_(critic.parameters(), 0.5)
    opt_a.step()
    opt_c.step()

print(*(p.norm().item() for p in actor.parameters()))
