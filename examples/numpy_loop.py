"""A classifier of handwritten digits in NumPy, its gradients clipped in place by one norm over all of them.

python examples/numpy_loop.py    (needs numpy and scikit-learn)
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import gradclip
from gradclip.dialects import torch  # PyTorch's conventions; this does not import PyTorch


def main(steps: int = 200) -> list[float]:
    """Train, and return the loss of each step."""
    rng = np.random.default_rng(0)
    images, labels = load_digits(return_X_y=True)
    images, one_hot = (images / 16).astype(np.float32), np.eye(10, dtype=np.float32)[labels]
    hidden_weight = rng.normal(0, 0.2, (64, 32)).astype(np.float32)
    score_weight = rng.normal(0, 0.2, (32, 10)).astype(np.float32)
    rule = torch.clip_grad_norm(max_norm=0.5)

    losses = []
    for step in range(1, steps + 1):
        batch = rng.choice(len(images), 64, replace=False)
        x, y = images[batch], one_hot[batch]

        hidden = np.tanh(x @ hidden_weight)
        scores = np.exp(hidden @ score_weight)
        probabilities = scores / scores.sum(axis=1, keepdims=True)
        losses.append(float(-np.mean(np.sum(y * np.log(probabilities), axis=1))))

        by_scores = (probabilities - y) / len(batch)
        by_hidden = (by_scores @ score_weight.T) * (1 - hidden**2)
        gradients = {"hidden": x.T @ by_hidden, "scores": hidden.T @ by_scores}

        clipped = gradclip.clip_(gradients, rule)  # writes into the arrays; gradclip.clip returns new ones
        hidden_weight -= 0.5 * gradients["hidden"]
        score_weight -= 0.5 * gradients["scores"]

        if step in (1, steps) or step % 50 == 0:
            print(f"step {step:3}  loss {losses[-1]:.4f}  norm {clipped.norm:.4f}  coefficient {clipped.coefficient:.4f}")
    return losses


if __name__ == "__main__":
    main()
