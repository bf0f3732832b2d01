"""PyTorch pipeline parallelism: a classifier of handwritten digits; each process has some of its layers.

``torchrun --nproc-per-node 2 examples/torch_pipeline.py``
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import gradclip


def main(steps: int = 100, max_norm: float = 0.5) -> list[float]:
    """Train, and return the loss of each step, which only the last process knows."""
    dist.init_process_group("gloo")
    stages = init_device_mesh("cpu", (2,), mesh_dim_names=("stages",))
    rank = stages.get_local_rank()
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    layers = (torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU()), torch.nn.Linear(32, 10))
    part = layers[rank]
    stage = PipelineStage(part, rank, stages.size(), torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=torch.nn.functional.cross_entropy)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.5)
    losses = []
    for step in range(steps):
        batch = torch.randint(len(images), (64,))
        parts: list[torch.Tensor] = []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(images[batch])
        else:
            schedule.step(target=labels[batch], losses=parts)
            losses.append(torch.stack(parts).detach().mean().item())
        # one norm over the layers of all processes
        norm = gradclip.clip_grad_norm_(part.parameters(), max_norm, error_if_nonfinite=True, reduce=stages)
        optimizer.step()
        if losses and step % 25 == 0:
            print(f"step {step:3}  loss {losses[-1]:.3f}  norm {norm.item():.3f}")
    if losses:
        print(f"first loss {losses[0]:.3f}, last loss {losses[-1]:.3f}")
    dist.barrier()  # a process that ends while another still sends may abort that one
    dist.destroy_process_group()
    return losses


if __name__ == "__main__":
    main()
