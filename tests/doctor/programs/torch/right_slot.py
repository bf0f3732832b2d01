"""Right: gradclip's hook clips inside the step."""

import torch
from start import regression

from gradclip.backends.torch import step_pre_hook
from gradclip.dialects.torch import clip_grad_norm

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer.register_step_pre_hook(step_pre_hook(clip_grad_norm(1.0)))

for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()
