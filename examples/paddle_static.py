"""Paddle, static programs: one without and one with ``GradientClipByNorm(clip_norm=2.0)``, compared batch by batch.

    python examples/paddle_static.py    (needs paddlepaddle and scikit-learn)

The classic comparison from paddle.fluid, on the handwritten digits of scikit-learn, padded to 28 x 28.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
from sklearn.datasets import load_digits

import gradclip

CLIP_NORM = 2.0


def batches(count: int, size: int = 64) -> Iterator[dict[str, np.ndarray]]:
    digits = load_digits()
    images = np.pad(digits.images, ((0, 0), (10, 10), (10, 10))).reshape(-1, 784).astype(np.float32)
    for start in range(0, count * size, size):
        yield {"image": images[start : start + size], "label": digits.target[start : start + size, None].astype(np.int64)}


def build(clip: Any) -> tuple[Any, Any, list[Any]]:
    """The program of a classifier and its gradients, the startup program for its parameters, and the gradients."""
    program, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(program, startup), paddle.utils.unique_name.guard():
        image = paddle.static.data("image", [None, 784], "float32")
        label = paddle.static.data("label", [None, 1], "int64")
        hidden = paddle.nn.functional.relu(paddle.nn.Linear(784, 128)(image))
        hidden = paddle.nn.functional.relu(paddle.nn.Linear(128, 64)(hidden))
        predicted = paddle.nn.functional.softmax(paddle.nn.Linear(64, 10)(hidden))
        loss = paddle.nn.functional.cross_entropy(predicted, label, use_softmax=False)
        pairs = paddle.static.append_backward(loss)
        pairs = pairs if clip is None else clip(pairs)
    return program, startup, [gradient for _, gradient in pairs]


def main(count: int = 3) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Run both programs on some batches, and return the unclipped and the clipped gradients of each batch."""
    paddle.enable_static()
    try:
        paddle.seed(0)
        plain, startup, gradients = build(None)
        clipping, _, clipped = build(gradclip.GradientClipByNorm(clip_norm=CLIP_NORM))  # it uses the first program's parameters
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        results = []
        for step, feed in enumerate(batches(count), 1):
            without = executor.run(plain, feed=feed, fetch_list=gradients)
            with_clip = executor.run(clipping, feed=feed, fetch_list=clipped)
            results.append((without, with_clip))
            norms = [f"{np.linalg.norm(a):.3f} -> {np.linalg.norm(b):.3f}" for a, b in zip(without, with_clip, strict=True)]
            print(f"batch {step}: {', '.join(norms)}")
    finally:
        paddle.disable_static()
    return results


if __name__ == "__main__":
    main()
