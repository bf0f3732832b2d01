import torch
from torch import nn

torch.manual_seed(0)
gen = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_gen = torch.optim.Adam(gen.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_critic = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
LAMBDA, N_CRITIC = 10, 3


def penalty(real, fake):
    eps = torch.rand(len(real), 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    grad = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)[0]
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def train_critic(real):
    fake = gen(torch.randn(len(real), 4)).detach()
    loss = critic(fake).mean() - critic(real).mean() + LAMBDA * penalty(real, fake)
    opt_critic.zero_grad()
    loss.backward()
    opt_critic.step()
    return loss.item()


def train_generator(n):
    loss = -critic(gen(torch.randn(n, 4))).mean()
    opt_gen.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(gen.parameters(), 1.0)
    opt_gen.step()
    return loss.item()


for it in range(3):
    for _ in range(N_CRITIC):
        c = train_critic(torch.randn(32, 2) + 2)
    print(it, c, train_generator(32))
