"""The head is stepped and not clipped."""

import paddle

paddle.seed(0)
model = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
optimizer = paddle.optimizer.SGD(0.01, model.parameters())
x, y = paddle.randn([64, 4]), 3 * paddle.randn([64, 1])


def loss() -> paddle.Tensor:
    return paddle.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    loss().backward()
    paddle.nn.utils.clip_grad_norm_(model[0].parameters(), 1.0)  # <- GD103
    optimizer.step()
    optimizer.clear_grad()
