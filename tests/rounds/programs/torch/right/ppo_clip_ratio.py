import argparse

import torch
from torch import nn
from torch.distributions import Categorical

parser = argparse.ArgumentParser()
parser.add_argument("--clip-coef", type=float, default=0.2)
parser.add_argument("--max-grad-norm", type=float, default=0.5)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--target-kl", type=float, default=None)
args = parser.parse_args()


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.v = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

    def evaluate(self, obs, act):
        d = Categorical(logits=self.pi(obs))
        return d.log_prob(act), d.entropy(), self.v(obs).squeeze(-1)


torch.manual_seed(1)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
obs, act, adv, ret = torch.randn(64, 4), torch.randint(0, 2, (64,)), torch.randn(64), 10 * torch.randn(64)
with torch.no_grad():
    old_logp, _, old_v = agent.evaluate(obs, act)

for epoch in range(args.epochs):
    for idx in torch.randperm(64).split(16):
        logp, entropy, v = agent.evaluate(obs[idx], act[idx])
        ratio = (logp - old_logp[idx]).exp()
        clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
        pg_loss = torch.max(-adv[idx] * ratio, -adv[idx] * clipped).mean()
        v_clipped = old_v[idx] + torch.clamp(v - old_v[idx], -args.clip_coef, args.clip_coef)
        v_loss = 0.5 * torch.max((v - ret[idx]) ** 2, (v_clipped - ret[idx]) ** 2).mean()
        loss = pg_loss - 0.01 * entropy.mean() + v_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
        optimizer.step()
    approx_kl = (old_logp[idx] - logp).mean().item()
    if args.target_kl is not None and approx_kl > args.target_kl:
        break
    print(epoch, loss.item(), approx_kl)
