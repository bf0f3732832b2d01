"""A printed line, run in Paddle."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from explain.printed.lines import ran


def run(line: str, grads: list[np.ndarray], rule: Any) -> Any:
    tensors = [paddle.to_tensor(g) for g in grads]
    model = paddle.nn.ParameterList([paddle.create_parameter(list(g.shape), "float32") for g in grads])
    for parameter, g in zip(model, tensors, strict=True):
        parameter.set_value(paddle.ones_like(g))
        parameter.grad = g
    names = {"paddle": paddle, "rule": rule, "grads": tensors, "model": model, "parameters": model.parameters()}
    value = ran(line, {**names, "optimizer": paddle.optimizer.SGD(1.0, parameters=model.parameters())})
    value = value._grad_clip if isinstance(value, paddle.optimizer.Optimizer) else value
    if callable(value) and not isinstance(value, paddle.Tensor):  # a clip for the slot of an optimizer
        return [g for _, g in value([(p, p.grad) for p in model])]
    if "result = " in line:
        return value.grads
    return value if "_(" not in line else [parameter.grad for parameter in model]
