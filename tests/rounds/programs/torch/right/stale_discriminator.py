import torch

g_opt = torch.optim.Adam(gen.parameters(), lr=1e-4)
d_opt = torch.optim.Adam(disc.parameters(), lr=1e-4)

for real in loader:
    fake = gen(torch.randn(64, 100))
    g_loss = -disc(fake).mean()
    g_opt.zero_grad()
    g_loss.backward()
    torch.nn.utils.clip_grad_norm_(gen.parameters(), 1.0)
    g_opt.step()

    d_opt.zero_grad()
    d_loss = disc(fake.detach()).mean() - disc(real).mean()
    d_loss.backward()
    torch.nn.utils.clip_grad_norm_(disc.parameters(), 1.0)
    d_opt.step()
