"""Paddle: a run with exploding steps; a monitor records it, and a limit that follows it clips in the optimizer's own slot.

``python examples/paddle_monitor.py run.png`` draws the run.
"""

from __future__ import annotations

import sys

import paddle
from exploding_digits import batches, following, shown

import gradclip
from gradclip.backends.paddle import grad_clip
from gradclip.dialects.paddle import clip_grad_by_global_norm


def main(steps: int = 600, picture: str | None = None) -> tuple[gradclip.Monitor, list[float]]:
    """Train, and return the monitor and the loss of each step."""
    paddle.seed(0)
    model = paddle.nn.Sequential(paddle.nn.Linear(64, 32), paddle.nn.ReLU(), paddle.nn.Linear(32, 10))
    monitor = gradclip.Monitor()
    clip = grad_clip(following(clip_grad_by_global_norm(2.0)), monitor=monitor)
    optimizer = paddle.optimizer.SGD(0.3, parameters=model.parameters(), grad_clip=clip)
    losses = []
    for images, labels in batches(steps):
        loss = paddle.nn.functional.cross_entropy(model(paddle.to_tensor(images)), paddle.to_tensor(labels))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    shown(monitor, losses, picture)
    return monitor, losses


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
