import torch
from torch import nn


class Reinforce:
    def __init__(self, lr=1e-2, clip=0.2):
        self.policy = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=lr)
        self.clip = clip

    def episode(self, n=40):
        obs = torch.randn(n, 3)
        dist = torch.distributions.Categorical(logits=self.policy(obs))
        act = dist.sample()
        reward = torch.where(act == (obs[:, 0] > 0), 10.0, -10.0)
        returns = reward.flip(0).cumsum(0).flip(0)
        return -(dist.log_prob(act) * returns).mean(), reward.mean().item()

    def limit(self):
        grads = [p.grad.detach().clone() for p in self.policy.parameters()]
        norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
        if norm > self.clip:
            for g in grads:
                g.mul_(self.clip / norm)
        return norm.item()

    def learn(self):
        loss, reward = self.episode()
        self.opt.zero_grad()
        loss.backward()
        norm = self.limit()
        self.opt.step()
        return reward, norm


torch.manual_seed(0)
agent = Reinforce()
for i in range(5):
    print(i, agent.learn())
