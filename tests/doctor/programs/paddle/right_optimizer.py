"""Right: the optimizer clips."""

import paddle
from start import regression

model, loss = regression()
optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))

for _ in range(6):
    for _ in range(2):
        loss().backward()
    optimizer.step()
    optimizer.clear_grad()
