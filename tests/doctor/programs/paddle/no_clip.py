"""No step is clipped."""

import paddle
from start import regression

model, loss = regression()
optimizer = paddle.optimizer.SGD(0.01, model.parameters())

for _ in range(6):
    loss().backward()
    optimizer.step()  # <- GD101
    optimizer.clear_grad()
