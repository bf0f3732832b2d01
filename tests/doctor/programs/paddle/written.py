"""Something writes the gradients after the clip."""

import paddle
from start import regression

model, loss = regression()
optimizer = paddle.optimizer.SGD(0.01, model.parameters())

for _ in range(6):
    loss().backward()
    paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for parameter in model.parameters():
        parameter.grad.set_value(parameter.grad * 3.0)  # <- GD104
    optimizer.step()
    optimizer.clear_grad()
