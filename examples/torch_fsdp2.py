"""PyTorch FSDP2: a classifier of handwritten digits, its parameters and gradients split over all processes.

``torchrun --nproc-per-node 2 examples/torch_fsdp2.py``
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradclip


def main(steps: int = 100, max_norm: float = 0.5) -> list[float]:
    """Train, and return the loss of each step."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for step in range(steps):
        batch = torch.randint(len(images), (64,)).chunk(mesh.size())[mesh.get_local_rank()]
        loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        # as in one process: a DTensor knows its placements on the other processes
        norm = gradclip.clip_grad_norm_(model.parameters(), max_norm, error_if_nonfinite=True)
        optimizer.step()
        dist.all_reduce(loss.detach_())
        losses.append(loss.item() / mesh.size())
        if dist.get_rank() == 0 and step % 25 == 0:
            print(f"step {step:3}  loss {losses[-1]:.3f}  norm {norm.item():.3f}")
    if dist.get_rank() == 0:
        print(f"first loss {losses[0]:.3f}, last loss {losses[-1]:.3f}")
    dist.barrier()  # a process that ends while another still sends may abort that one
    dist.destroy_process_group()
    return losses


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # DTensor's caches keep gloo's threads alive; a thread that frees a tensor at Python's exit aborts the process
    os._exit(0)
