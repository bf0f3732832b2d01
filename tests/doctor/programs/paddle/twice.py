"""The optimizer clips too."""

import paddle
from start import regression

model, loss = regression()
optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5))

for _ in range(6):
    loss().backward()
    paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- GD106
    optimizer.clear_grad()
