"""PyTorch: a classifier of handwritten digits, its gradients clipped by one norm before each step."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits

import gradclip


def main(steps: int = 200, max_norm: float = 1.0) -> list[float]:
    """Train, and return the loss of each step."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses, clipped = [], 0
    for step in range(steps):
        batch = torch.randint(len(images), (64,))
        loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        # only this line changes: before, it was torch.nn.utils.clip_grad_norm_
        norm = gradclip.clip_grad_norm_(model.parameters(), max_norm, error_if_nonfinite=True)
        clipped += int(norm > max_norm)
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step:3}  loss {loss.item():.3f}  norm {norm.item():.3f}")
    print(f"last loss {losses[-1]:.3f}; clipped {clipped} of {steps} steps")
    return losses


if __name__ == "__main__":
    main()
