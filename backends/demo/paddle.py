"""The classifier in Paddle: dynamic mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from gradclip.backends.demo.base import Function, Trainer
from gradclip.backends.demo.digits import Digits


class PaddleTrainer(Trainer):
    name = "paddle"

    def tensor(self, array: np.ndarray) -> Any:
        return paddle.to_tensor(array)

    def array(self, tensor: Any) -> np.ndarray:
        return np.asarray(tensor.numpy() if isinstance(tensor, paddle.Tensor) else tensor)

    def differentiate(self, weights: list[Any], batch: Digits) -> tuple[Any, list[Any]]:
        weights = [weight.detach() for weight in weights]
        for weight in weights:
            weight.stop_gradient = False
        first, first_bias, second, second_bias = weights
        hidden = paddle.tanh(self.tensor(batch.images) @ first + first_bias)
        loss = paddle.nn.functional.cross_entropy(hidden @ second + second_bias, self.tensor(batch.labels))
        return loss, paddle.grad(loss, weights)

    def devices(self) -> list[str]:
        return ["cpu"] + [f"gpu:{i}" for i in range(paddle.device.cuda.device_count())]

    def traces(self) -> dict[str, Callable[[Function, Any], Any]]:
        return {"paddle.jit.to_static": lambda f, x: paddle.jit.to_static(f, full_graph=True)(x), "static Program": _program}


def _program(function: Function, tensor: Any) -> Any:
    values = tensor.numpy()
    paddle.enable_static()
    try:
        program = paddle.static.Program()
        with paddle.static.program_guard(program):
            result = function(paddle.static.data("x", values.shape, str(values.dtype)))
            return paddle.static.Executor().run(program, feed={"x": values}, fetch_list=[result])[0]
    finally:
        paddle.disable_static()


trainer = PaddleTrainer()
