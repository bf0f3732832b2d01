"""Counts collectives and bytes of a clip on 2 to 64 processes; this process is the first, and torch's fake group sends nothing.

``python -m torch_only.distributed.counting`` prints the table of ``docs/collectives.md``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch_only.distributed.common import Traffic

import gradclip

SIZES = (2, 4, 8, 16, 32, 64)
COUNT = 100


def gradients(mesh: DeviceMesh, *kinds: tuple[int, Any]) -> list[torch.nn.Parameter]:
    """Return this many parameters of each placement, with gradients."""
    made = []
    for count, placements in kinds:
        for _ in range(count):
            parameter = torch.nn.Parameter(DTensor.from_local(torch.zeros(2, 2), mesh, placements, run_check=False))
            parameter.grad = DTensor.from_local(torch.ones(2, 2), mesh, placements, run_check=False)
            made.append(parameter)
    return made


def fsdp(size: int) -> list[torch.nn.Parameter]:
    return gradients(init_device_mesh("cpu", (size,)), (COUNT, [Shard(0)]))


def hybrid(size: int) -> list[torch.nn.Parameter]:
    return gradients(init_device_mesh("cpu", (2, size // 2)), (COUNT, [Replicate(), Shard(0)]))


def sequence_parallel(size: int) -> list[torch.nn.Parameter]:
    return gradients(init_device_mesh("cpu", (size,)), (COUNT - 20, [Shard(0)]), (20, [Partial()]))


def fsdp_and_tensor_parallel(size: int) -> list[torch.nn.Parameter]:
    mesh = init_device_mesh("cpu", (size // 2, 2))
    return gradients(mesh, (COUNT - 20, [Shard(0), Shard(0)]), (20, [Shard(0), Replicate()]))


def several_meshes(size: int) -> list[torch.nn.Parameter]:
    """Return experts on a mesh of two dimensions, other parameters on one, and a local tensor."""
    experts = gradients(init_device_mesh("cpu", (size // 2, 2)), (COUNT - 21, [Shard(1), Shard(0)]))
    whole = torch.nn.Parameter(torch.zeros(2))
    whole.grad = torch.ones(2)
    return [*experts, *gradients(init_device_mesh("cpu", (size,)), (20, [Shard(0)])), whole]


#: name -> (the least number of processes, a function that makes the parameters)
LAYOUTS = {
    "FSDP2": (2, fsdp),
    "FSDP2, replicas of shards": (4, hybrid),
    "TP with sequence parallelism": (2, sequence_parallel),
    "FSDP2 and TP": (4, fsdp_and_tensor_parallel),
    "several meshes and a local tensor": (4, several_meshes),
}


def counted(clip: Callable[..., Any], parameters: list[torch.nn.Parameter]) -> str:
    try:
        with Traffic() as traffic:
            clip(parameters, 1e9)
    except RuntimeError:
        return "raises"
    return f"{len(traffic.sent)} of {sum(traffic.sent)} B"


def table() -> list[str]:
    """Return the lines of the table: for each layout what gradclip and torch send from each process."""
    lines = ["| 100 gradients | processes | gradclip | torch |", "| --- | --- | --- | --- |"]
    for name, (least, layout) in LAYOUTS.items():
        rows: dict[tuple[str, str], list[int]] = {}
        for size in (size for size in SIZES if size >= least):
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
            ours = counted(gradclip.clip_grad_norm_, layout(size))
            native = counted(torch.nn.utils.clip_grad_norm_, layout(size))
            rows.setdefault((ours, native), []).append(size)
            dist.destroy_process_group()
        for (ours, native), sizes in rows.items():
            counts = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
            lines.append(f"| {name} | {counts} | {ours} | {native} |")
    return lines


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("\n".join(table()))
