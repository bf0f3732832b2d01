import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--n_iter", type=int, default=4)
parser.add_argument("--n_critic", type=int, default=2)
parser.add_argument("--lr", type=float, default=5e-5)
parser.add_argument("--clip_value", type=float, default=0.01)
parser.add_argument("--latent_dim", type=int, default=8)
opt = parser.parse_args()

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(opt.latent_dim, 32), nn.ReLU(), nn.Linear(32, 4), nn.Tanh())
discriminator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizer_G = torch.optim.RMSprop(generator.parameters(), lr=opt.lr)
optimizer_D = torch.optim.RMSprop(discriminator.parameters(), lr=opt.lr)

for i in range(opt.n_iter):
    real = torch.randn(16, 4)
    optimizer_D.zero_grad()
    fake = generator(torch.randn(16, opt.latent_dim)).detach()
    loss_D = -discriminator(real).mean() + discriminator(fake).mean()
    loss_D.backward()
    optimizer_D.step()
    for p in discriminator.parameters():
        p.data.clamp_(-opt.clip_value, opt.clip_value)

    if i % opt.n_critic == 0:
        optimizer_G.zero_grad()
        loss_G = -discriminator(generator(torch.randn(16, opt.latent_dim))).mean()
        loss_G.backward()
        optimizer_G.step()
        print(i, loss_D.item(), loss_G.item())
