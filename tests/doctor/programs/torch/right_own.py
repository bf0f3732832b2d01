"""Right: gradclip's functions, in place and with new gradients."""

import torch
from start import regression

import gradclip
from gradclip.dialects.torch import clip_grad_norm

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(6):
    optimizer.zero_grad()
    loss().backward()
    if step % 2:
        gradclip.clip_(model.parameters(), clip_grad_norm(1.0))
    else:
        grads = gradclip.clip([p.grad for p in model.parameters()], clip_grad_norm(1.0)).grads
        for parameter, grad in zip(model.parameters(), grads, strict=True):
            parameter.grad = grad
    optimizer.step()
