import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
Z = 8
G = nn.Sequential(nn.Linear(Z, 32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-4, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=4e-4, betas=(0.5, 0.9))
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)


def d_step(real):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fake = G(torch.randn(len(real), Z)).detach()
        loss = F.relu(1 - D(real)).mean() + F.relu(1 + D(fake)).mean()
    opt_d.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt_d)
    return loss.item()


def g_step(n):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = -D(G(torch.randn(n, Z))).mean()
    opt_g.zero_grad()
    opt_d.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt_d)
    nn.utils.clip_grad_norm_(G.parameters(), 0.01)
    scaler.step(opt_g)
    return loss.item()


for it in range(4):
    d = d_step(torch.randn(32, 2) + 3)
    scaler.update()
    g = g_step(32)
    scaler.update()
    print(it, d, g)
