"""Right: a norm for each gradient; minimize."""

import paddle
from start import regression

model, loss = regression()
optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByNorm(1.0))

for _ in range(6):
    value = loss()
    value.backward()
    optimizer.minimize(value)
    model.clear_gradients()
