"""Right: gradclip's function."""

import paddle
from start import regression

import gradclip

model, loss = regression()
optimizer = paddle.optimizer.SGD(0.01, model.parameters())

for _ in range(6):
    loss().backward()
    gradclip.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.clear_grad()
