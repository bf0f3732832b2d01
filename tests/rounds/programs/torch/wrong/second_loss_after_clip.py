"""A denoiser against a critic."""

import torch
from torch import nn

torch.manual_seed(0)
denoiser, critic = nn.Linear(8, 8), nn.Linear(8, 1)
opt_g = torch.optim.Adam(denoiser.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(critic.parameters(), lr=1e-3)

for _ in range(12):
    clean = torch.randn(16, 8)
    out = denoiser(clean + 0.1 * torch.randn_like(clean))

    opt_g.zero_grad()
    nn.functional.mse_loss(out, clean).backward(retain_graph=True)
    nn.utils.clip_grad_norm_(denoiser.parameters(), 0.1)
    (-5.0 * critic(out).mean()).backward()
    opt_g.step()

    opt_d.zero_grad()
    (critic(out.detach()) - critic(clean)).mean().backward()
    opt_d.step()

print(*(p.norm().item() for p in denoiser.parameters()))
