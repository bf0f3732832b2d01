"""Right: gradclip's object in the optimizer."""

import paddle

from gradclip.backends.paddle import grad_clip
from gradclip.dialects.torch import clip_grad_norm

paddle.seed(0)
model = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
optimizer = paddle.optimizer.SGD(0.01, model.parameters(), grad_clip=grad_clip(clip_grad_norm(1.0)))
x, y = paddle.randn([64, 4]), 3 * paddle.randn([64, 1])


def loss() -> paddle.Tensor:
    return paddle.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    loss().backward()
    optimizer.step()
    optimizer.clear_grad()
