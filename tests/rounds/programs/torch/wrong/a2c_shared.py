import torch
from torch import nn


class Agent(nn.Module):
    def __init__(self, obs, act, max_norm=0.5):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs, 32), nn.Tanh(), nn.Linear(32, act))
        self.critic = nn.Sequential(nn.Linear(obs, 32), nn.Tanh(), nn.Linear(32, 1))
        self.max_norm = max_norm
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def update(self, obs, actions, returns):
        values = self.critic(obs).squeeze(-1)
        value_loss = (returns - values).pow(2).mean()
        self.critic_opt.zero_grad()
        value_loss.backward()
        nn.utils.clip_grad_norm_(self.critic.parameters(), 10.0)
        self.critic_opt.step()

        dist = torch.distributions.Categorical(logits=self.actor(obs))
        advantage = returns - values.detach()
        policy_loss = -(dist.log_prob(actions) * advantage).mean() - 0.01 * dist.entropy().mean()
        self.actor_opt.zero_grad()
        policy_loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), self.max_norm)
        self.actor_opt.step()
        return value_loss.item(), policy_loss.item()


def rollout(agent, n=32):
    obs = torch.randn(n, 4)
    with torch.no_grad():
        actions = torch.distributions.Categorical(logits=agent.actor(obs)).sample()
    return obs, actions, 20 * obs[:, 0] * (actions == 1).float()


if __name__ == "__main__":
    torch.manual_seed(0)
    agent = Agent(4, 2)
    for i in range(5):
        print(i, agent.update(*rollout(agent)))
