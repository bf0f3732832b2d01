"""Shared by the checks: sharded tensors, exact norms, agreement between processes, and counted collectives."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import oracle
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.debug import CommDebugMode

from gradclip.backends.torch import lanes


def fail_on_warnings() -> None:
    warnings.simplefilter("error")
    # torch 2.13: FSDP2 warns of any module that returns a view; a linear layer on a batch of sequences does
    warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)


def leave() -> NoReturn:
    """End this process without Python's finalisation.

    Gloo's threads run on after ``destroy_process_group`` while any object refers to the group, for example DTensor's caches.
    A thread that frees a collective's tensor needs the interpreter, and aborts the process during its finalisation.
    """
    dist.barrier()  # if one process exits while another still sends, the other aborts
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


@contextlib.contextmanager
def as_on_a_device() -> Iterator[None]:
    """Compute everything with tensors, as where reading a value costs a synchronisation."""
    is_on_host = lanes.is_on_host
    lanes.is_on_host = lambda x: False
    try:
        yield
    finally:
        lanes.is_on_host = is_on_host


def world() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def square() -> DeviceMesh:
    """Return a mesh of four processes, two by two."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def parted(x: torch.Tensor, mesh: DeviceMesh, sizes: Sequence[int], dim: int = 0) -> DTensor:
    """Return a tensor split along a dimension, with this length on each process of a mesh of one dimension."""
    here = x.split(list(sizes), dim)[mesh.get_local_rank()].clone()
    return DTensor.from_local(here, mesh, [Shard(dim)], run_check=False, shape=x.shape, stride=x.stride())


def random_sizes(total: int, parts: int, generator: torch.Generator) -> list[int]:
    """Return a way to divide ``total`` rows; parts may be empty."""
    cuts = torch.randint(0, total + 1, (parts - 1,), generator=generator).sort().values.tolist()
    return [high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True)]


def exact(tensors: Sequence[torch.Tensor], order: float) -> float:
    """Return the norm over all elements, computed with 120 bits; of order 0 the number of tensors that are not all zero."""
    arrays = [x.detach().double().numpy().ravel() for x in tensors]
    if order == 0:
        return float(sum(bool(array.any()) for array in arrays))
    return float(oracle.norm(np.concatenate(arrays), order))


def exact_square(tensors: Sequence[torch.Tensor]) -> float:
    """Return the Euclidean norm of many elements, by a sum that rounds once."""
    return math.sqrt(math.fsum(value * value for x in tensors for value in x.detach().double().flatten().tolist()))


def agree(value: Any) -> None:
    """Assert that all processes have the same value, bit for bit."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, repr(_numbers(value)))
    assert len(set(found)) == 1, found


def _numbers(value: Any) -> Any:
    """Convert tensors, also in lists and dicts, to Python's numbers, whose repr is exact."""
    if isinstance(value, (list, tuple)):
        return [_numbers(x) for x in value]
    if isinstance(value, dict):
        return {name: _numbers(x) for name, x in value.items()}
    if isinstance(value, torch.Tensor):
        return (value.full_tensor() if hasattr(value, "full_tensor") else value).tolist()
    return value


def close(got: Any, want: Any, dtype: str = "float32", at_most: float = 4) -> None:
    distance = oracle.ulps(float(got), float(want), dtype)
    assert distance <= at_most, f"{float(got)!r} for {float(want)!r}: {distance} ulp of {dtype}"


def same(got: Sequence[Any], want: Sequence[Any], at_most: float = 4) -> None:
    """Assert that gradients, full or sharded, are within this many ulp of the full ones."""
    for g, w in zip(got, want, strict=True):
        g = g.full_tensor() if isinstance(g, DTensor) else g
        name = str(w.dtype).removeprefix("torch.")
        distance = oracle.ulps(g.double().numpy(), w.double().numpy(), name)
        assert distance <= at_most, f"{distance} ulp: {g} for {w}"


MARKS = 24  #: the bytes in each exchange of norms that tell what is unlike the parameters


class Traffic(CommDebugMode):
    """Records the collectives, with the bytes that this process sends in each."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self.get_total_counts()
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.get_total_counts() > before:
            tensors = [x for x in _flat(args) if isinstance(x, torch.Tensor)]
            mine = min(tensors, key=torch.numel)  # a gather has an output argument too
            self.sent.append(mine.numel() * mine.element_size())
        return result


def _flat(values: Any) -> list[Any]:
    return [leaf for value in values for leaf in (_flat(value) if isinstance(value, (list, tuple)) else [value])]
