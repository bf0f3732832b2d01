"""Right: a hook clips and steps each parameter during the backward pass."""

import torch
from start import regression

model, loss = regression()
optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

for parameter in model.parameters():

    def clip_and_step(p: torch.Tensor) -> None:
        torch.nn.utils.clip_grad_norm_([p], 1.0)
        optimizers[p].step()
        optimizers[p].zero_grad()

    parameter.register_post_accumulate_grad_hook(clip_and_step)

for _ in range(6):
    loss().backward()
