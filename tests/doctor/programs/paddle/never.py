"""The limit is far above every norm."""

import paddle

paddle.seed(0)
model = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
optimizer = paddle.optimizer.SGD(0.01, model.parameters())
x, y = paddle.randn([64, 4]), 3 * paddle.randn([64, 1])


def loss() -> paddle.Tensor:
    return paddle.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    loss().backward()
    paddle.nn.utils.clip_grad_norm_(model.parameters(), 1e4)  # <- GD301
    optimizer.step()
    optimizer.clear_grad()
