"""A gradient is not a number."""

import paddle
from start import regression

model, loss = regression()
optimizer = paddle.optimizer.SGD(0.01, model.parameters())

for step in range(6):
    (loss() * (float("nan") if step == 3 else 1.0)).backward()
    paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GD201
    optimizer.step()
    optimizer.clear_grad()
