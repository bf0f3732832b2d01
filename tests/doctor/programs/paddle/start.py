"""What the programs of this folder start with."""

from collections.abc import Callable

import paddle


def regression(noise: float = 3) -> tuple[paddle.nn.Sequential, Callable[[], paddle.Tensor]]:
    """Return a small model and its loss."""
    paddle.seed(0)
    model = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
    x, y = paddle.randn([64, 4]), noise * paddle.randn([64, 1])
    return model, lambda: paddle.nn.functional.mse_loss(model(x), y)
