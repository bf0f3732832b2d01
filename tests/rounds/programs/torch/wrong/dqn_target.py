import copy
import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
random.seed(0)
GAMMA, BATCH, TAU = 0.99, 16, 0.005


def make_net():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))


policy_net = make_net()
target_net = copy.deepcopy(policy_net)
for p in target_net.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-4, amsgrad=True)
memory = deque(maxlen=1000)


def optimize_model():
    if len(memory) < BATCH:
        return None
    s, a, r, s2 = map(torch.stack, zip(*random.sample(memory, BATCH)))
    q = policy_net(s).gather(1, a)
    with torch.no_grad():
        target = r + GAMMA * target_net(s2).max(1, keepdim=True).values
    loss = F.smooth_l1_loss(q, target, reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(target_net.parameters(), 10.0)
    optimizer.step()
    return loss.item()


def soft_update():
    for tp, pp in zip(target_net.parameters(), policy_net.parameters()):
        tp.data.mul_(1 - TAU).add_(TAU * pp.data)


for step in range(30):
    memory.append((torch.randn(4), torch.randint(0, 2, (1,)), 100 * torch.randn(1), torch.randn(4)))
    loss = optimize_model()
    soft_update()
print("last loss", loss)
