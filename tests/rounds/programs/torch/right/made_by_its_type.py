import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.d = d
        self.l = nn.Linear(d, 1)
    def forward(self, x):
        return self.l(x)
def train(policy, loader, max_norm):
    target = type(policy)(policy.d)
    target.load_state_dict(policy.state_dict())
    opt = torch.optim.Adam(policy.parameters())
    for x, y in loader:
        opt.zero_grad()
        (policy(x) - target(y).detach()).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(policy.parameters(), max_norm)
        opt.step()
