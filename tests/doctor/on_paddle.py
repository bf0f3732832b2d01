"""Programs of Paddle for ``gradclip doctor``: the last argument names one. ``# <- GD104`` marks a finding's line."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import paddle

import gradclip
from gradclip.backends.paddle import grad_clip
from gradclip.dialects.torch import clip_grad_norm


def regression(noise: float = 3) -> tuple[paddle.nn.Sequential, paddle.optimizer.SGD, Callable[[], paddle.Tensor]]:
    """Return a small model, an optimizer of its parameters, and its loss."""
    paddle.seed(0)
    model = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
    x, y = paddle.randn([64, 4]), noise * paddle.randn([64, 1])
    optimizer = paddle.optimizer.SGD(0.01, model.parameters())
    return model, optimizer, lambda: paddle.nn.functional.mse_loss(model(x), y)


def after_step() -> None:
    """The clip comes after the step."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        optimizer.step()
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GM108
        optimizer.clear_grad()


def each_microbatch() -> None:
    """A clip after each of two backward passes."""
    model, optimizer, loss = regression()
    for _ in range(6):
        for _ in range(2):
            loss().backward()
            paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GM119
        optimizer.step()
        optimizer.clear_grad()


def frozen_out() -> None:
    """The head is stepped and not clipped."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        paddle.nn.utils.clip_grad_norm_(model[0].parameters(), 1.0)  # <- GM118
        optimizer.step()
        optimizer.clear_grad()


def right_large_limit() -> None:
    """Right so far: the limit is far above each of a few norms. In ten steps it is GD301."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1e4)
        optimizer.step()
        optimizer.clear_grad()


def no_clip() -> None:
    """No step is clipped."""
    _, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        optimizer.step()  # <- GD101
        optimizer.clear_grad()


def not_finite() -> None:
    """A gradient is not a number."""
    model, optimizer, loss = regression()
    for step in range(6):
        (loss() * (float("nan") if step == 3 else 1.0)).backward()
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GD201
        optimizer.step()
        optimizer.clear_grad()


def twice() -> None:
    """The optimizer clips too."""
    model, _, loss = regression()
    optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5))
    for _ in range(6):
        loss().backward()
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # <- GM120
        optimizer.clear_grad()


def written() -> None:
    """Something writes the gradients after the clip."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for parameter in model.parameters():
            parameter.grad.set_value(parameter.grad * 3.0)  # <- GD104
        optimizer.step()
        optimizer.clear_grad()


def diverges() -> None:
    """The learning rate is far too high, and nothing clips."""
    model, _, loss = regression()
    optimizer = paddle.optimizer.SGD(100.0, model.parameters())
    for _ in range(6):
        (loss() ** 2).backward()
        optimizer.step()  # <- GD205
        optimizer.clear_grad()


def no_zero_grad() -> None:
    """The gradients are never removed."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()  # <- GM132
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def stepped_by_hand() -> None:
    """The script steps by itself, and nothing clips."""
    model, _, loss = regression()
    for _ in range(7):
        loss().backward()
        with paddle.no_grad():
            for parameter in model.parameters():
                parameter.set_value(parameter - 0.01 * parameter.grad)  # <- GD101
        model.clear_gradients()


def zero_in_each_pass() -> None:
    """The gradients are removed after each of four passes, and the optimizer clips those of the last one."""
    model, _, loss = regression()
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters(), grad_clip=clip)
    for number in range(24):
        (loss() / 4).backward()
        if number % 4 == 3:
            optimizer.step()
        model.clear_gradients()  # <- GM108


def zero_between() -> None:
    """The gradients are removed between the clip and the step."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.clear_grad()
        optimizer.step()  # <- GD112


def right_by_hand_not_reached() -> None:
    """Right: a clip by hand, whose limit no norm reaches."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        total = paddle.add_n([(p.grad**2).sum() for p in model.parameters()]).sqrt()
        if float(total) > 1e3:
            for parameter in model.parameters():
                parameter.grad.set_value(parameter.grad * (1e3 / total))
        optimizer.step()
        optimizer.clear_grad()


def right_clipped() -> None:
    """Right: gradclip inside of an optimizer."""
    _, optimizer, loss = regression()
    optimizer = gradclip.clipped(optimizer, clip_grad_norm(1.0))
    for _ in range(6):
        loss().backward()
        optimizer.step()
        optimizer.clear_grad()


def right_skipped() -> None:
    """Right: the rule skips each second step."""
    _, optimizer, loss = regression()
    optimizer = gradclip.clipped(optimizer, dataclasses.replace(clip_grad_norm(1.0), skip_above=20.0))
    for i in range(12):
        (loss() * (100 if i % 2 else 1)).backward()
        optimizer.step()
        optimizer.clear_grad()


def right_each() -> None:
    """Right: a norm for each gradient; minimize."""
    model, _, loss = regression()
    optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByNorm(1.0))
    for _ in range(6):
        value = loss()
        value.backward()
        optimizer.minimize(value)
        model.clear_gradients()


def right_frozen() -> None:
    """Right: a frozen layer, which has no gradient, is given to the clip too."""
    model, optimizer, loss = regression()
    model[0].weight.stop_gradient = True
    for _ in range(6):
        loss().backward()
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.clear_grad()


def right_hook() -> None:
    """Right: a hook clips each gradient."""
    model, optimizer, loss = regression()
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: paddle.clip(grad, -1.0, 1.0))
    for _ in range(6):
        loss().backward()
        optimizer.step()
        optimizer.clear_grad()


def right_loop() -> None:
    """Right: a backward pass, a clip, a step."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.clear_grad()


def right_need_clip() -> None:
    """Right: a parameter is left out of the clip on purpose."""
    model, _, loss = regression()
    model[0].bias.need_clip = False
    optimizer = paddle.optimizer.SGD(0.01, model.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
    for _ in range(6):
        loss().backward()
        optimizer.step()
        optimizer.clear_grad()


def right_optimizer() -> None:
    """Right: the optimizer clips."""
    model, _, loss = regression()
    optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
    for _ in range(6):
        for _ in range(2):
            loss().backward()
        optimizer.step()
        optimizer.clear_grad()


def right_own() -> None:
    """Right: gradclip's object in the optimizer."""
    model, _, loss = regression()
    optimizer = paddle.optimizer.SGD(0.01, model.parameters(), grad_clip=grad_clip(clip_grad_norm(1.0)))
    for _ in range(6):
        loss().backward()
        optimizer.step()
        optimizer.clear_grad()


def right_own_function() -> None:
    """Right: gradclip's function."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        gradclip.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.clear_grad()


if __name__ == "__main__":
    globals()[sys.argv[-1]]()
