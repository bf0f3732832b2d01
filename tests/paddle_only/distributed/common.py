"""Shared by the checks: distributed tensors, exact norms, agreement between processes, and counted collectives."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import oracle
import paddle
import paddle.distributed as dist

from gradclip.backends.paddle import PaddleBackend, versions

Shard, Replicate, Partial = dist.Shard, dist.Replicate, dist.Partial


@functools.cache
def world() -> dist.ProcessMesh:
    return dist.ProcessMesh(list(range(dist.get_world_size())), dim_names=["x"])


@functools.cache
def square() -> dist.ProcessMesh:
    """Return a mesh of four processes, two by two."""
    return dist.ProcessMesh([[0, 1], [2, 3]], dim_names=["dp", "tp"])


def random(shape: Sequence[int], seed: int, dtype: str = "float32") -> paddle.Tensor:
    """Return the same tensor on every process; the dtype represents its values exactly."""
    return paddle.to_tensor(np.random.default_rng(seed).standard_normal(shape), "float32").astype(dtype)


def placed(x: paddle.Tensor, mesh: Any, *placements: Any) -> paddle.Tensor:
    if x.dtype not in (paddle.bfloat16, paddle.float16):
        return dist.shard_tensor(x, mesh, list(placements))
    wide = dist.shard_tensor(x.astype("float32"), mesh, list(placements))  # on a CPU Paddle 3.3.1 cannot split halves
    return versions.dtensor_from_local(wide._local_value().astype(x.dtype), mesh, list(placements))


def addends(x: paddle.Tensor, mesh: Any) -> paddle.Tensor:
    """Return a tensor that is the sum of the processes' local tensors, on a mesh of one dimension."""
    mine = x * (1.0 + dist.get_rank())
    return versions.dtensor_from_local(mine, mesh, [Partial()])


def array(x: paddle.Tensor) -> np.ndarray:
    return x.astype("float64").numpy()


def exact(tensors: Sequence[paddle.Tensor], order: float = 2.0) -> float:
    """Return the norm over all elements, computed with 120 bits."""
    return float(oracle.norm(np.concatenate([array(x).ravel() for x in tensors]), order))


def agree(value: Any) -> None:
    """Assert that all processes have the same value, bit for bit."""
    found: list[Any] = []
    dist.all_gather_object(found, repr(value))
    assert len(set(found)) == 1, found


def close(got: Any, want: Any, dtype: str = "float32", at_most: float = 4) -> None:
    distance = oracle.ulps(np.asarray(got, np.float64), np.asarray(want, np.float64), dtype)
    assert distance <= at_most, f"{got!r} for {want!r}: {distance} ulp of {dtype}"


def local(x: paddle.Tensor) -> np.ndarray:
    """Return this process's part of a gradient; nothing for an empty part."""
    held = x._local_value() if x.is_dist() else x
    return array(held) if held._is_initialized() else np.zeros(held.shape)


@contextlib.contextmanager
def traffic() -> Iterator[list[int]]:
    """Record the bytes that this process puts into each collective of gradclip."""
    sent: list[int] = []
    gather, reshard = dist.all_gather, dist.reshard

    def counted_gather(rows: Any, mine: Any, **keywords: Any) -> Any:
        sent.append(mine.size * mine.element_size())
        return gather(rows, mine, **keywords)

    def counted_reshard(x: Any, mesh: Any, placements: Any) -> Any:
        mine = x._local_value()
        sent.append(mine.size * mine.element_size())
        return reshard(x, mesh, placements)

    dist.all_gather, dist.reshard = counted_gather, counted_reshard
    try:
        yield sent
    finally:
        dist.all_gather, dist.reshard = gather, reshard


@contextlib.contextmanager
def as_on_a_device() -> Iterator[None]:
    """Compute everything with tensors, as where reading a value costs a synchronisation."""
    looks = PaddleBackend.reads_free
    PaddleBackend.reads_free = lambda self, tensors: False
    try:
        yield
    finally:
        PaddleBackend.reads_free = looks
