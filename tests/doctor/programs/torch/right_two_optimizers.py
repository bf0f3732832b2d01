"""Right: two networks with an optimizer each, as in a GAN."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
critic = torch.nn.Linear(1, 1)
other = torch.optim.Adam(critic.parameters(), lr=0.01)
x, y = torch.randn(64, 4), 3 * torch.randn(64, 1)


def loss() -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    other.zero_grad()
    (critic(model(x)) - critic(y)).mean().backward()
    torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
    other.step()
    optimizer.zero_grad()
    (-critic(model(x)).mean() + loss()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
