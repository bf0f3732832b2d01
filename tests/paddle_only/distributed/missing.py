"""Gradients that are placed otherwise than their parameters, and that some processes lack: one norm for all, none waits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import pytest
from paddle_only.distributed.common import (
    Partial,
    Replicate,
    Shard,
    agree,
    as_on_a_device,
    close,
    exact,
    local,
    placed,
    random,
    square,
    traffic,
    world,
)

import gradclip
from gradclip.backends.paddle import grad_clip, versions
from gradclip.core.errors import ArgumentError, GradclipWarning
from gradclip.dialects import torch as dialect

RULE = dialect.clip_grad_norm(0.5)


def parameter(mesh: Any, *placements: Any) -> paddle.Tensor:
    return placed(paddle.create_parameter([4, 2], "float32"), mesh, *placements)


def addend(x: paddle.Tensor, mesh: Any, *placements: Any) -> paddle.Tensor:
    """Return a gradient to which each process adds x, times its number from 1."""
    return versions.dtensor_from_local(x * (1.0 + dist.get_rank()), mesh, list(placements))


def clipped(param: paddle.Tensor, grad: paddle.Tensor | None, lacking: set[int], want: float) -> None:
    """Clip a gradient that some ranks lack; the norm, what it scales, and the number of collectives."""
    param.clear_grad()
    if dist.get_rank() not in lacking:
        param.grad = grad
    before = None if param.grad is None else local(param.grad).copy()
    with traffic() as sent:
        norm = gradclip.clip_([param], RULE).norm
    agree((float(norm), len(sent)))
    close(float(norm), want)
    if before is not None:
        close(local(param.grad), before * min(1.0, 0.5 / (want + 1e-6)), at_most=8)


def check_addends_of_a_replicated_parameter() -> None:
    """As a batch in shards leaves them; without its own a process adds nothing."""
    size = dist.get_world_size()
    x = random((4, 2), 1)
    for count in range(size):
        for lacking in itertools.combinations(range(size), count):
            factor = sum(rank + 1 for rank in range(size) if rank not in lacking)
            clipped(parameter(world(), Replicate()), addend(x, world(), Partial()), {*lacking}, factor * exact([x]))


def check_means() -> None:
    size = dist.get_world_size()
    x, mean = random((4, 2), 1), Partial(dist.ReduceType.kRedAvg)
    for lacking in ({0}, {size - 1}, set()):
        factor = sum(rank + 1 for rank in range(size) if rank not in lacking) / size
        clipped(parameter(world(), Replicate()), addend(x, world(), mean), lacking, factor * exact([x]))


def check_shards_of_a_replicated_parameter_and_replicas_of_a_sharded_one() -> None:
    size = dist.get_world_size()
    x = random((4, 2), 2)
    rows = x.numpy().astype("float64").reshape(size, -1)
    for lacking in (set(), {0}, {size - 1}):
        left = np.delete(rows, [*lacking], axis=0)
        clipped(parameter(world(), Replicate()), placed(x, world(), Shard(0)), lacking, float(np.sqrt((left**2).sum())))
        clipped(parameter(world(), Shard(0)), placed(x, world(), Replicate()), lacking, exact([x]))
        clipped(parameter(world(), Replicate()), placed(x, world(), Replicate()), lacking, exact([x]))


def check_4_addends_in_one_dimension_of_two() -> None:
    x = random((4, 2), 3)
    rows = [x[:2].numpy().astype("float64"), x[2:].numpy().astype("float64")]  # of the second dimension's two places
    for lacking in (set(), {0}, {3}, {0, 1}, {0, 3}):
        sums = [sum(r // 2 + 1 for r in (at, 2 + at) if r not in lacking) * rows[at] for at in (0, 1)]
        mine = paddle.to_tensor(rows[dist.get_rank() % 2].astype("float32")) * (1.0 + dist.get_rank() // 2)
        grad = versions.dtensor_from_local(mine, square(), [Partial(), Shard(0)])
        clipped(parameter(square(), Replicate(), Shard(0)), grad, lacking, float(np.sqrt(sum((s**2).sum() for s in sums))))


def check_all_that_lack_it() -> None:
    with pytest.warns(GradclipWarning, match="None of the parameters has a gradient"):
        clipped(parameter(world(), Replicate()), None, set(range(dist.get_world_size())), 0.0)


def check_frozen_weights_cost_nothing_more() -> None:
    used, frozen = parameter(world(), Shard(0)), parameter(world(), Replicate())
    used.grad = placed(random((4, 2), 4), world(), Shard(0))
    frozen.stop_gradient = True
    with traffic() as sent:
        gradclip.clip_([used, frozen], RULE)
    assert sent == [16 + 24]


def check_one_process_skips_a_layer() -> None:
    """A real backward pass: the batch is in shards, and the first process does not use the layer."""
    size = dist.get_world_size()
    param, whole = parameter(world(), Replicate()), random((4, 2), 6)
    param.set_value(whole)
    batch = placed(random((2 * size, 4), 5), world(), Shard(0))
    if dist.get_rank():
        (batch @ param).square().sum().backward()
        assert param.grad.placements == [Partial()], "else this check shows nothing"
    rest = random((2 * size, 4), 5)[2:].numpy().astype("float64")
    want = float(np.linalg.norm(2 * rest.T @ (rest @ whole.numpy().astype("float64"))))
    norm = gradclip.norm([param], RULE)
    agree(float(norm))
    close(float(norm), want, at_most=64)  # the gradient itself is rounded


def check_in_the_slots() -> None:
    """Paddle tells a ``grad_clip`` nothing of a parameter without a gradient; a clipped optimizer knows its parameters."""
    size = dist.get_world_size()
    x = random((4, 2), 1)
    param, grad = parameter(world(), Replicate()), addend(x, world(), Partial())
    [(_, out)] = grad_clip(RULE)([(param, grad)])
    close(local(dist.unshard_dtensor(out)), 0.5 * x.numpy() / exact([x]), at_most=64)
    for lacking in (0, size - 1):  # Paddle's step would wait for the addend for ever, also without a clip
        pairs = [(param, grad)] if dist.get_rank() != lacking else []
        pairs.append((parameter(world(), Shard(0)), placed(x, world(), Shard(0))))
        with pytest.raises(ArgumentError, match=r"(?s)A gradient must be placed alike.*P:sum on rank"):
            grad_clip(RULE)(pairs)
    for lacking in (0, size - 1):
        params = [parameter(world(), Replicate()), parameter(world(), Shard(0))]
        optimizer = gradclip.clipped(paddle.optimizer.SGD(1.0, parameters=params), RULE)
        if dist.get_rank() != lacking:
            params[0].grad = grad
        params[1].grad = placed(x, world(), Shard(0))
        pairs = versions.pairs_of(optimizer)
        optimizer.gradclip.is_asked = True  # as in step(): Paddle's own would sum the gradient, and wait for the others
        out = optimizer.gradclip(pairs)
        assert len(out) == (1 if dist.get_rank() == lacking else 2)
        want = exact([x]) * (1 + sum(rank + 1 for rank in range(size) if rank != lacking) ** 2) ** 0.5
        close(float(optimizer.gradclip.last.norm), want)


def check_with_tensors_as_on_a_device() -> None:
    """Without a look at a value only gradients that all have, or that are no replicas, are known."""
    size = dist.get_world_size()
    x = random((4, 2), 1)
    with as_on_a_device():
        clipped(parameter(world(), Replicate()), addend(x, world(), Partial()), set(), size * (size + 1) / 2 * exact([x]))
        rest = x.numpy().astype("float64").reshape(size, -1)[1:]
        clipped(parameter(world(), Shard(0)), placed(x, world(), Shard(0)), {0}, float(np.sqrt((rest**2).sum())))
        clipped(parameter(world(), Replicate()), placed(x, world(), Replicate()), {size - 1}, exact([x]))


def check_what_is_refused_on_all_processes() -> None:
    """One process has another placement than the others, or a mistake: every process raises, and none waits."""
    last = dist.get_rank() == dist.get_world_size() - 1
    x = random((4, 2), 1)
    param = parameter(world(), Replicate())
    param.grad = placed(x, world(), Replicate()) if last else addend(x, world(), Partial())
    with pytest.raises(ArgumentError, match=r"(?s)A gradient must be placed alike.*P:sum on rank 0.*R on rank"):
        gradclip.clip_([param], RULE)
    param = parameter(world(), Replicate())
    param.grad = addend(x, world(), Partial(dist.ReduceType.kRedMax)) if last else placed(x, world(), Replicate())
    with pytest.raises(ArgumentError, match="not defined" if last else "Another process has refused this clip"):
        gradclip.clip_([param], RULE)
    plain = paddle.create_parameter([4, 2], "float32")
    with pytest.raises(ArgumentError, match="A gradient is placed on a mesh, and its parameter is not"):
        gradclip.clip([(plain, addend(x, world(), Partial()))], RULE)
