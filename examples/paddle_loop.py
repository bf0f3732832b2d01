"""Paddle, dynamic mode: a classifier of handwritten digits; the optimizer clips each gradient by its own norm.

python examples/paddle_loop.py    (needs paddlepaddle and scikit-learn)
"""

from __future__ import annotations

import paddle
from sklearn.datasets import load_digits

import gradclip


def main(steps: int = 200, clip_norm: float = 2.0) -> list[float]:
    """Train, and return the loss of each step."""
    paddle.seed(0)
    digits = load_digits()
    images, labels = paddle.to_tensor(digits.data, "float32"), paddle.to_tensor(digits.target)  # pixels between 0 and 16
    model = paddle.nn.Sequential(paddle.nn.Linear(64, 32), paddle.nn.ReLU(), paddle.nn.Linear(32, 10))
    # only this line changes: before, it was paddle.nn.ClipGradByNorm
    clip = gradclip.ClipGradByNorm(clip_norm)
    optimizer = paddle.optimizer.SGD(0.02, parameters=model.parameters(), grad_clip=clip)

    losses = []
    for step in range(1, steps + 1):
        batch = paddle.randint(0, len(labels), [64])
        loss = paddle.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        norms = gradclip.norm(model.parameters(), clip.rule)  # of the unclipped gradients: the optimizer clips copies
        optimizer.clear_grad()
        losses.append(loss.item())
        if step in (1, steps) or step % 50 == 0:
            print(f"step {step:3}  loss {losses[-1]:.4f}  norms {'  '.join(f'{norm:.3f}' for norm in norms)}")
    return losses


if __name__ == "__main__":
    main()
