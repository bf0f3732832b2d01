"""What a user of Paddle writes."""

from typing import assert_type

import paddle

import gradclip
from gradclip import dialects
from gradclip.backends.paddle import grad_clip

model = paddle.nn.Linear(2, 1)
native = paddle.optimizer.SGD(0.1, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
one = paddle.optimizer.SGD(0.1, parameters=model.parameters(), grad_clip=gradclip.ClipGradByGlobalNorm(1.0))
two = paddle.optimizer.SGD(0.1, parameters=model.parameters(), grad_clip=gradclip.ClipGradByNorm(1.0))
three = paddle.optimizer.SGD(0.1, parameters=model.parameters(), grad_clip=gradclip.ClipGradByValue(1.0, -2.0))
rule = dialects.paddle.clip_grad_by_global_norm(1.0)
slot = paddle.optimizer.SGD(0.1, parameters=model.parameters(), grad_clip=grad_clip(rule))


def train(batches: list[paddle.Tensor]) -> paddle.Tensor:
    norm = paddle.zeros([])
    for batch in batches:
        model(batch).sum().backward()
        norm = gradclip.clip_grad_norm_(model.parameters(), 1.0)
        gradclip.clip_grad_value_(model.parameters(), 1.0)
        one.step()
        one.clear_grad()
    return norm


assert_type(gradclip.clip_(iter(model.parameters()), rule).grads, list[paddle.Tensor])
assert_type(gradclip.clip([paddle.zeros([2])], rule).grads, list[paddle.Tensor])
