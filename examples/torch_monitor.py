"""PyTorch: a run with exploding steps, seen by a monitor, clipped by a limit that follows it.

``python examples/torch_monitor.py run.png`` writes the picture of the README. ``python tools/dark.py`` makes its dark version.
"""

from __future__ import annotations

import dataclasses
import math
import sys

import torch
from sklearn.datasets import load_digits

import gradclip
from gradclip import limits
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects.torch import clip_grad_norm


def main(steps: int = 600, picture: str | None = None) -> gradclip.Monitor:
    """Train on handwritten digits; now and then a batch is as large as no other, or not finite."""
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    monitor, adaptive = gradclip.Monitor(), gradclip.Adaptive(limits.quantile(0.9, warmup=50, at_first=2.0))
    rule = dataclasses.replace(clip_grad_norm(adaptive), if_nonfinite="zero")
    optimizer.register_step_pre_hook(step_pre_hook(rule, monitor=monitor))
    losses = []
    for step in range(steps):
        batch = torch.randint(len(images), (64,))
        scale = {37: 300.0, 51: math.nan}.get(step % 100, 1.0)  # on purpose
        loss = torch.nn.functional.cross_entropy(model(images[batch] * scale), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(monitor)
    usual = [loss for loss in losses if loss < 10]
    print(f"loss {usual[0]:.3f} at first, {sum(usual[-50:]) / 50:.3f} in the end")
    if picture:
        monitor.plot(picture)
    return monitor


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
