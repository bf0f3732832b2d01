"""Right: a norm for each gradient; minimize."""

import paddle

paddle.seed(0)
model = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByNorm(1.0))
x, y = paddle.randn([64, 4]), 3 * paddle.randn([64, 1])


def loss() -> paddle.Tensor:
    return paddle.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    value = loss()
    value.backward()
    optimizer.minimize(value)
    model.clear_gradients()
