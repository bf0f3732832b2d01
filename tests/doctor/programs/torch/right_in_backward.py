"""Right: a hook clips and steps each parameter during the backward pass."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
x, y = torch.randn(64, 4), 3 * torch.randn(64, 1)


def loss() -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


for parameter in model.parameters():

    def clip_and_step(p: torch.Tensor) -> None:
        torch.nn.utils.clip_grad_norm_([p], 1.0)
        optimizers[p].step()
        optimizers[p].zero_grad()

    parameter.register_post_accumulate_grad_hook(clip_and_step)

for _ in range(6):
    loss().backward()
