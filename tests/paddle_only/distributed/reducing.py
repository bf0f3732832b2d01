"""``reduce=``: each process has different gradients, as in pipeline parallelism."""

from __future__ import annotations

import math

import numpy as np
import paddle
import paddle.distributed as dist
import pytest
from paddle_only.distributed.common import Shard, agree, close, exact, local, placed, random, square, traffic, world

import gradclip
from gradclip import limits
from gradclip.backends.paddle import grad_clip
from gradclip.core.errors import ArgumentError, GradclipWarning
from gradclip.dialects import paddle as paddle_dialect
from gradclip.dialects import torch as dialect


def stages() -> list[list[object]]:
    """Return the gradients of each process; the last has none."""
    n = dist.get_world_size()
    return [[random((3, rank + 1), rank), random((4,), rank + 10)] for rank in range(n - 1)] + [[]]


def check_a_group_and_a_mesh() -> None:
    mine = stages()[dist.get_rank()]
    flat = [g for stage in stages() for g in stage]
    for order in (1.0, 2.0, math.inf, -1.0, -math.inf):
        for reduce in (dist.get_group(), world()):
            with traffic() as sent:
                got = gradclip.norm(mine, dialect.clip_grad_norm(1.0, norm_type=order), reduce=reduce)
            assert sent == [8 + 24], "24 bytes tell what is unlike the others"
            close(got, exact(flat, order))
            agree(float(np.float32(got)))  # without gradients the norm is a Python number, because no framework is known


def check_no_gradient_on_any_process() -> None:
    """The norm is 0, of any order."""
    parameter = paddle.create_parameter([2], "float32")
    for order in (1.0, 2.0, math.inf, -1.0, -2.5, -math.inf):
        with pytest.warns(GradclipWarning, match="None of the parameters has a gradient"):
            result = gradclip.clip_([parameter], dialect.clip_grad_norm(1.0, norm_type=order), reduce=dist.get_group())
        assert (float(result.norm), float(result.coefficient)) == (0.0, 1.0), order


def check_a_clip_with_a_group() -> None:
    mine = stages()[dist.get_rank()]
    flat = [g for stage in stages() for g in stage]
    before = [local(g) for g in mine]
    norm = gradclip.clip_(mine, paddle_dialect.clip_grad_by_global_norm(0.5), reduce=world()).norm
    close(norm, exact(flat))
    for g, x in zip(mine, before, strict=True):
        close(local(g), x * 0.5 / exact(flat))


def check_a_function() -> None:
    mine = stages()[dist.get_rank()] or [random((2,), 99) * 0]
    flat = [g for stage in stages() for g in stage]
    got = gradclip.norm(mine, dialect.clip_grad_norm(1.0), reduce=lambda power: dist.all_reduce(power) and None)
    close(got, exact(flat))
    largest = dist.ReduceOp.MAX
    rule = dialect.clip_grad_norm(1.0, norm_type=math.inf)
    got = gradclip.norm(mine, rule, reduce=lambda norm: dist.all_reduce(norm, op=largest) and None)
    close(got, exact(flat, math.inf))


def check_a_monitor_and_a_limit_that_follows() -> None:
    """They see the reduced norm: all processes have the same counts, and the same limit at each step."""
    monitor, adaptive = gradclip.Monitor(every=5), gradclip.Adaptive(limits.quantile(0.5, warmup=3))
    alone = gradclip.Adaptive(limits.quantile(0.5, warmup=3))
    mine = stages()[dist.get_rank()] or [random((2,), 99) * 0]
    clip = grad_clip(dialect.clip_grad_norm(adaptive), reduce=world(), monitor=monitor)
    for step, size in enumerate([1.0, 2.0, 0.5, 100.0, math.nan, 1.0, 0.7, 3.0]):
        clip([(paddle.create_parameter(g.shape, "float32"), g * size) for g in mine])
        want = alone.step(exact([g for stage in stages() for g in stage]) * size)
        assert abs(float(adaptive.last) - want) <= 1e-5 * want, step
        agree(float(adaptive.last))
    found = monitor.report()
    assert (found["steps"], found["not_finite"], found["not_finite_first_step"]) == (8, 1, 4)
    agree(list(found.values()))


def check_what_would_be_counted_twice() -> None:
    x = placed(random((8, 2), 1), world(), Shard(0))
    with pytest.raises(ArgumentError, match="processes of reduce= already share the norm"):
        gradclip.norm([x], dialect.clip_grad_norm(1.0), reduce=world())


def check_a_static_program() -> None:
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program()):
            x = paddle.static.data("x", [2], "float32")
            with pytest.raises(ArgumentError, match="is for dynamic mode"):
                gradclip.clip([x], dialect.clip_grad_norm(1.0), reduce=world())
    finally:
        paddle.disable_static()


def check_no_derivative_through_other_processes() -> None:
    x = random((2,), dist.get_rank())
    x.stop_gradient = False
    with pytest.raises(ArgumentError, match="has no derivative"):
        gradclip.clip([x * 2], dialect.clip_grad_norm(1.0), reduce=world())


def check_not_a_member() -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    other = dist.ProcessMesh([(rank + 1) % n], dim_names=["x"])
    with pytest.raises(ArgumentError, match="does not belong to the group"):
        gradclip.norm([random((2,), 0)], dialect.clip_grad_norm(1.0), reduce=other)


def check_4_split_stages() -> None:
    """Two stages of two processes; both processes of a stage share each of its gradients."""
    rank = dist.get_rank()
    mesh = dist.ProcessMesh([0, 1] if rank < 2 else [2, 3], dim_names=["x"])
    x = [random((4, 3), 1), random((2, 5), 2)]
    stage = dist.ProcessMesh(square().mesh[:, rank % 2].tolist(), dim_names=["stages"])
    with traffic() as sent:
        got = gradclip.norm([placed(x[rank // 2], mesh, Shard(0))], dialect.clip_grad_norm(1.0), reduce=stage)
    assert sent == [16 + 24, 8 + 24]
    close(got, exact(x))
    agree(float(got))


def check_shards_of_plain_tensors() -> None:
    """Experts of each process, beside a distributed tensor and a replica: each counts once, in one collective."""
    n, rank = dist.get_world_size(), dist.get_rank()
    experts = [random((2, r + 1), r + 20) * (1 + r) for r in range(n)]
    dense, replica = random((4, 3), 1), random((5,), 2)
    whole = [dense, replica, *experts]
    for order in (1.0, 2.0, math.inf):
        for group in (dist.get_group(), world()):
            for shards in ({"expert": group}, lambda name, p, g=group: g if name == "expert" else None):
                given = {
                    "dense": placed(dense.clone(), world(), Shard(0)),
                    "replica": replica.clone(),
                    "expert": experts[rank].clone(),
                }
                with traffic() as sent:
                    got = gradclip.norm(given, dialect.clip_grad_norm(1.0, norm_type=order), shards=shards)
                assert sent == [16 + 24]
                close(got, exact(whole, order))
                agree(float(got))
    before = local(given["expert"])
    gradclip.clip_(given, paddle_dialect.clip_grad_by_global_norm(0.5), shards={"expert": world()})
    close(local(given["expert"]), before * 0.5 / exact(whole))
    with pytest.raises(ArgumentError, match="must be the same on every process") as error:
        gradclip.norm(given, dialect.clip_grad_norm(1.0))
    assert "'expert' with norm" in str(error.value)
    agree(str(error.value))


def check_shards_in_the_slot() -> None:
    n, rank = dist.get_world_size(), dist.get_rank()
    experts, replica = [random((2, 2), r + 20) for r in range(n)], random((5,), 2)
    pairs = [(paddle.create_parameter(x.shape, "float32"), x.clone()) for x in (replica, experts[rank])]
    clip = grad_clip(paddle_dialect.clip_grad_by_global_norm(0.5), shards={pairs[1][0].name: dist.get_group()})
    clipped = clip(pairs)
    want = exact([replica, *experts])
    close(clip.last.norm, want)
    for (_, got), x in zip(clipped, (replica, experts[rank]), strict=True):
        close(local(got), local(x) * 0.5 / want)
