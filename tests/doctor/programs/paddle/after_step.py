"""The clip comes after the step."""

import paddle
from start import regression

model, loss = regression()
optimizer = paddle.optimizer.SGD(0.01, model.parameters())

for _ in range(6):
    loss().backward()
    optimizer.step()
    paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GD107
    optimizer.clear_grad()
