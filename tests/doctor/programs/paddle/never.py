"""The limit is far above every norm."""

import paddle
from start import regression

model, loss = regression()
optimizer = paddle.optimizer.SGD(0.01, model.parameters())

for _ in range(6):
    loss().backward()
    paddle.nn.utils.clip_grad_norm_(model.parameters(), 1e4)  # <- GD301
    optimizer.step()
    optimizer.clear_grad()
