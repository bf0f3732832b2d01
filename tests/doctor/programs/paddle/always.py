"""Each step is clipped to less than a tenth."""

import paddle
from start import regression

model, loss = regression(noise=1000)
optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))

for _ in range(6):
    loss().backward()
    optimizer.step()  # <- GD302
    optimizer.clear_grad()
