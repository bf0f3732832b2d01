"""Paddle data parallel: a classifier of handwritten digits; all processes share each batch.

``python -m paddle.distributed.launch --nproc_per_node 2 examples/paddle_data_parallel.py``
"""

from __future__ import annotations

import paddle
import paddle.distributed as dist
from sklearn.datasets import load_digits

import gradclip


def main(steps: int = 100, clip_norm: float = 0.5) -> list[float]:
    """Train, and return the loss of each step."""
    dist.init_parallel_env()
    rank, size = dist.get_rank(), dist.get_world_size()
    paddle.seed(0)
    digits = load_digits()
    images, labels = paddle.to_tensor(digits.data / 16, "float32"), paddle.to_tensor(digits.target)
    layers = paddle.nn.Sequential(paddle.nn.Linear(64, 32), paddle.nn.ReLU(), paddle.nn.Linear(32, 10))
    model = paddle.DataParallel(layers)
    # as in one process: backward() averages the gradients, so each process has all of them
    clip = gradclip.ClipGradByGlobalNorm(clip_norm)
    optimizer = paddle.optimizer.SGD(0.5, parameters=model.parameters(), grad_clip=clip)

    losses = []
    for step in range(steps):
        batch = paddle.randint(0, len(labels), [64]).chunk(size)[rank]
        loss = paddle.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        norm = gradclip.norm(model.parameters(), clip.rule)
        optimizer.step()
        optimizer.clear_grad()
        mean = loss.detach()
        dist.all_reduce(mean)
        losses.append(mean.item() / size)
        if rank == 0 and step % 25 == 0:
            print(f"step {step:3}  loss {losses[-1]:.3f}  norm {float(norm):.3f}")
    if rank == 0:
        print(f"first loss {losses[0]:.3f}, last loss {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
