"""Programs of PyTorch for ``gradclip doctor``: the last argument names one. ``# <- GD104`` marks the line of each finding."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

import gradclip
from gradclip.dialects.torch import clip_grad_norm


def regression(noise: float = 3, width: int = 8) -> tuple[torch.nn.Sequential, torch.optim.SGD, Callable[[], torch.Tensor]]:
    """Return a small model, an optimizer of its parameters, and its loss."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    x, y = torch.randn(64, 4), noise * torch.randn(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model, optimizer, lambda: torch.nn.functional.mse_loss(model(x), y)


def after_step() -> None:
    """The clip comes after the step."""
    model, optimizer, loss = regression()
    for _ in range(6):
        loss().backward()
        optimizer.step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GM108
        optimizer.zero_grad()


def right_clipped() -> None:
    """Right: gradclip inside of an optimizer."""
    _, optimizer, loss = regression()
    optimizer = gradclip.clipped(optimizer, clip_grad_norm(1.0))
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def right_skipped() -> None:
    """Right: the rule skips each second step."""
    _, optimizer, loss = regression()
    optimizer = gradclip.clipped(optimizer, dataclasses.replace(clip_grad_norm(1.0), skip_above=20.0))
    for i in range(12):
        optimizer.zero_grad()
        (loss() * (100 if i % 2 else 1)).backward()
        optimizer.step()


def after_zero() -> None:
    """The gradients are gone at the clip, and a backward pass makes new ones."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GD102
        loss().backward()
        optimizer.step()


def counted_critic() -> None:
    """The critic counts in the generator's norm, and its gradients are removed then."""
    model, optimizer, _ = regression()
    critic, real = torch.nn.Linear(1, 1), torch.randn(64, 1)
    other, noise = torch.optim.SGD(critic.parameters(), lr=0.01), torch.randn(64, 4)
    for _ in range(6):
        other.zero_grad()
        (critic(model(noise)) - critic(real)).mean().backward()
        torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        other.step()
        optimizer.zero_grad()
        (-critic(model(noise))).mean().backward()
        torch.nn.utils.clip_grad_norm_([*model.parameters(), *critic.parameters()], 0.5)  # <- GM118
        optimizer.step()


def counted_too() -> None:
    """The clip counts parameters that no optimizer has: their gradients grow for ever."""
    model, _, loss = regression()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GM118
        optimizer.step()


def dropped() -> None:
    """gradclip.clip returns new gradients, and nothing takes them."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        gradclip.clip(model.parameters(), clip_grad_norm(1.0))  # <- GM105
        optimizer.step()


def each_layer() -> None:
    """Each layer has a norm of its own."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        for layer in (model[0], model[2]):
            torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)  # <- GM135
        optimizer.step()


def each_microbatch() -> None:
    """The gradients of four batches accumulate, and each pass is clipped."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        for _ in range(4):
            loss().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GM119
        optimizer.step()


def frozen_out() -> None:
    """The head is stepped and not clipped."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model[0].parameters(), 1.0)  # <- GM118
        optimizer.step()


def gradients_given() -> None:
    """torch's clip takes parameters: a gradient has no gradient."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        with warnings.catch_warnings(action="ignore"):
            torch.nn.utils.clip_grad_norm_([p.grad for p in model.parameters()], 1.0)  # <- GD102
        optimizer.step()


def limit_negative() -> None:
    """A negative limit turns the gradients round."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), -1.0)  # <- GD304
        optimizer.step()


def limit_none() -> None:
    """None is no limit: the clip raises, and the script ignores it."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        with contextlib.suppress(TypeError):
            torch.nn.utils.clip_grad_norm_(model.parameters(), None)  # <- GD304
        optimizer.step()


def limit_zero() -> None:
    """A limit of 0 freezes the model."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.0)  # <- GD304
        optimizer.step()


def mean() -> None:
    """Gradients are divided by the number of passes, which is no clip."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        for _ in range(3):
            loss().backward()
        for parameter in model.parameters():
            parameter.grad /= 3
        optimizer.step()  # <- GD101


def narrow() -> None:
    """The norm of finite gradients is infinite in float16."""
    model, optimizer, _ = regression()
    model.half()
    for _ in range(6):
        optimizer.zero_grad()
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 30000.0)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e5)  # <- GD202
        optimizer.step()


def right_large_limit() -> None:
    """Right so far: the limit is far above each of a few norms. In ten steps it is GD301."""
    model, optimizer, loss = regression()
    for _ in range(10):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e4)
        optimizer.step()


def no_clip() -> None:
    """No step is clipped."""
    _, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()  # <- GD101


def not_finite() -> None:
    """A gradient is not a number."""
    model, optimizer, loss = regression()
    for step in range(6):
        optimizer.zero_grad()
        (loss() * (float("nan") if step == 3 else 1.0)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GD201
        optimizer.step()


def removed() -> None:
    """The optimizer's own step removes the gradients, which nothing clipped."""

    class Sgd(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            super().step(closure)
            self.zero_grad()

    model, _, loss = regression()
    optimizer = Sgd(model.parameters(), lr=0.01)
    for _ in range(6):
        loss().backward()
        optimizer.step()  # <- GD101


def replaced() -> None:
    """The gradients are replaced after the clip."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        model[0].weight.grad = torch.ones_like(model[0].weight)  # <- GD104
        optimizer.step()


def scaled() -> None:
    """The gradients still have the loss scale."""
    model, optimizer, loss = regression()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(6):
        optimizer.zero_grad()
        scaler.scale(loss()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e4)  # <- GM107
        scaler.step(optimizer)
        scaler.update()


def sometimes() -> None:
    """Every other step is clipped."""
    model, optimizer, loss = regression()
    for step in range(6):
        optimizer.zero_grad()
        loss().backward()
        if step % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # <- GD101


def twice() -> None:
    """By norm and then by value."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)  # <- GM120
        optimizer.step()


def used_up() -> None:
    """The optimizer has used up the iterator."""
    model, _, loss = regression()
    params = model.parameters()
    optimizer = torch.optim.SGD(params, lr=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        with warnings.catch_warnings(action="ignore"):
            torch.nn.utils.clip_grad_norm_(params, 1.0)  # <- GM101
        optimizer.step()


def written() -> None:
    """A function writes the gradients after the clip."""
    model, optimizer, loss = regression()

    def add_noise() -> None:
        for parameter in model.parameters():
            parameter.grad.add_(0.1)  # <- GD104

    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        add_noise()
        optimizer.step()


def written_data() -> None:
    """The same through .data, which autograd does not count."""
    model, optimizer, loss = regression()
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        model[0].weight.grad.data.mul_(7.0)  # <- GD104
        optimizer.step()


def written_data_large() -> None:
    """The same in a larger model, where only the first write is seen at the step, and autograd does not count it."""
    model, _, loss = regression(width=40_000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)
    for _ in range(6):
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        model[0].weight.grad.data.mul_(7.0)  # <- GD104
        optimizer.step()


def wrong_norm() -> None:
    """The norm of tiny gradients has no digits in float16."""
    model, optimizer, _ = regression()
    model.half()
    for _ in range(6):
        optimizer.zero_grad()
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 6e-8)
            parameter.grad[1:] = 0
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-6)  # <- GD203
        optimizer.step()


if __name__ == "__main__":
    globals()[sys.argv[-1]]()
