"""The optimizer clips too."""

import paddle

paddle.seed(0)
model = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5))
x, y = paddle.randn([64, 4]), 3 * paddle.randn([64, 1])


def loss() -> paddle.Tensor:
    return paddle.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    loss().backward()
    paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- GD106
    optimizer.clear_grad()
