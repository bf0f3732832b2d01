import copy

import torch
from torch import nn
from torch.nn import functional as F


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, o))


class SAC:
    def __init__(self, obs=3, act=1, max_norm=1.0):
        self.actor, self.q = mlp(obs, 2 * act), mlp(obs + act, 1)
        self.q_target = copy.deepcopy(self.q).requires_grad_(False)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.q_opt = torch.optim.Adam(self.q.parameters(), 3e-4)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], 3e-4)
        self.max_norm = max_norm

    def act(self, s):
        mu, log_std = self.actor(s).chunk(2, -1)
        d = torch.distributions.Normal(mu, log_std.clamp(-5, 2).exp())
        a = d.rsample()
        return a, d.log_prob(a).sum(-1, keepdim=True)

    def step(self, opt, loss, module):
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), self.max_norm)
        opt.step()

    def update(self, s, a, r, s2):
        with torch.no_grad():
            a2, logp2 = self.act(s2)
            y = r + 0.99 * (self.q_target(torch.cat([s2, a2], 1)) - self.log_alpha.exp() * logp2)
        self.step(self.q_opt, F.mse_loss(self.q(torch.cat([s, a], 1)), y), self.q)
        pi, logp = self.act(s)
        self.step(self.actor_opt, (self.log_alpha.exp().detach() * logp - self.q(torch.cat([s, pi], 1))).mean(), self.actor)
        self.alpha_opt.zero_grad()
        (-self.log_alpha * (logp.detach() - 1)).mean().backward()
        self.alpha_opt.step()


torch.manual_seed(0)
agent = SAC()
for _ in range(4):
    agent.update(torch.randn(16, 3), torch.randn(16, 1), torch.randn(16, 1), torch.randn(16, 3))
print(agent.log_alpha.item())
