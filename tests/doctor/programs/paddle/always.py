"""Each step is clipped to less than a tenth."""

import paddle

paddle.seed(0)
model = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
x, y = paddle.randn([64, 4]), 1000 * paddle.randn([64, 1])


def loss() -> paddle.Tensor:
    return paddle.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    loss().backward()
    optimizer.step()  # <- GD302
    optimizer.clear_grad()
