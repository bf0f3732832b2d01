"""PyTorch: a run with exploding steps; a monitor records it, and a limit that follows it clips.

``python examples/torch_monitor.py run.png`` draws the README's picture. ``python tools/dark.py`` draws its dark version.
"""

from __future__ import annotations

import sys

import torch
from exploding_digits import batches, following, shown

import gradclip
from gradclip.dialects.torch import clip_grad_norm


def main(steps: int = 600, picture: str | None = None) -> tuple[gradclip.Monitor, list[float]]:
    """Train, and return the monitor and the loss of each step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    monitor, optimizer = gradclip.Monitor(), torch.optim.SGD(model.named_parameters(), lr=0.3)
    optimizer = gradclip.clipped(optimizer, following(clip_grad_norm(2.0)), monitor=monitor)
    losses = []
    for images, labels in batches(steps):
        loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(images)), torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    shown(monitor, losses, picture)
    return monitor, losses


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
