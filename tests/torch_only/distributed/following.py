"""A monitor and a limit that follows the run, on several processes: both see the reduced norm, and all processes agree."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor
from torch_only.distributed.common import Traffic, agree, as_on_a_device, close, exact, world
from torch_only.distributed.shards import randn

import gradclip
from gradclip import limits
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects import keras
from gradclip.dialects import torch as dialect

STEPS = 40
LIMITS: tuple[Any, ...] = (
    limits.quantile(0.9, warmup=10),
    limits.autoclip(warmup=5),
    limits.zclip(warmup=10),
    limits.log_norm(warmup=10),
    limits.schedule(lambda step: 2.0 + step),
)


def share(step: int, rank: int) -> torch.Tensor:
    """Return a process's gradient at a step: one process alone has a spike or a NaN, and once all are zero."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(3 + rank, generator=generator)
    return x * {17: 1e4 if rank == 0 else 1.0, 23: math.nan if rank == 1 else 1.0, 31: 0.0}.get(step, 1.0)


def whole(step: int) -> list[torch.Tensor]:
    return [share(step, rank) for rank in range(dist.get_world_size())]


def alone(limit: Any) -> tuple[list[float], list[float]]:
    """Return the limits and norms of one process with all gradients."""
    adaptive = gradclip.Adaptive(limit)
    norms = [exact(whole(step), 2.0) for step in range(STEPS)]
    return [float(adaptive.step(norm)) for norm in norms], norms


def check_all_processes_see_the_reduced_norm() -> None:
    for limit in LIMITS:
        want, norms = alone(limit)
        for looks in (True, False):
            if looks:
                follow(limit, want, norms)
            else:
                with as_on_a_device():
                    follow(limit, want, norms)


def follow(limit: Any, want: list[float], norms: list[float]) -> None:
    """At each step all processes have the same limit, bit for bit, near that of one process with all gradients."""
    adaptive, monitor = gradclip.Adaptive(limit), gradclip.Monitor(every=7)
    rule = dataclasses.replace(dialect.clip_grad_norm(adaptive), if_nonfinite="zero")
    limits_taken = []
    for step in range(STEPS):
        result = gradclip.clip_([share(step, dist.get_rank())], rule, reduce=dist.group.WORLD)
        monitor.update(result)
        limits_taken.append(float(adaptive.last))
        assert abs(float(adaptive.last) - want[step]) <= 1e-3 * want[step], (limit, step)
        assert result.grads[0].isfinite().all()
    agree(limits_taken)
    agree(dict(adaptive.state))
    agree([(name, repr(x)) for name, x in monitor.report().items()])
    found = monitor.report()
    assert (found["steps"], found["not_finite"], found["not_finite_first_step"]) == (STEPS, 1, 23)
    close(found["norm_before_largest"], max(n for n in norms if n == n))


def check_the_hook_and_the_groups() -> None:
    monitor, adaptive = gradclip.Monitor(), gradclip.Adaptive(limits.quantile(0.5, warmup=3))
    weight = torch.nn.Parameter(torch.zeros(3 + dist.get_rank()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    rules = [gradclip.Group(dialect.clip_grad_norm(adaptive))]
    optimizer.register_step_pre_hook(step_pre_hook(rules, reduce=dist.group.WORLD, monitor=monitor))
    for step in range(10):
        weight.grad = share(step, dist.get_rank())
        optimizer.step()
    close(monitor.report()["0/norm_before_largest"], max(exact(whole(step), 2.0) for step in range(10)))
    agree(list(monitor.report().values()))
    agree(adaptive.last)


def check_distributed_tensors() -> None:
    """Distributed tensors declare how they are split; also with a limit for each gradient."""
    mesh = world()
    one, each = gradclip.Adaptive(limits.quantile(0.5, warmup=3)), gradclip.Adaptive(limits.adagc(warmup=5))
    monitor, wanted = gradclip.Monitor(each=1), gradclip.Adaptive(limits.adagc(warmup=5))
    for step in range(12):
        grads = [torch.randn(8, 2, generator=torch.Generator().manual_seed(step)) * size for size in (1.0, 3.0)]
        parts = {name: distribute_tensor(x, mesh, [Shard(0)]) for name, x in zip("ab", grads, strict=True)}
        monitor.update(gradclip.clip(parts, dialect.clip_grad_norm(one)), grads=parts)
        gradclip.clip(parts, keras.clipnorm(each))
        gradclip.clip(grads, keras.clipnorm(wanted))
        agree([float(one.last), *each.last.tolist()])
        torch.testing.assert_close(torch.as_tensor(each.last), torch.as_tensor(wanted.last), rtol=1e-5, atol=0.0)
    agree(list(monitor.report().values()))
    first, second = monitor.gradients()
    assert (first.name, second.name) == ("b", "a")
    assert abs(first.share + second.share - 1.0) < 1e-5


def check_all_processes_look_for_a_culprit_together() -> None:
    """Measuring a sharded gradient needs all processes: one that started alone would wait for ever."""
    monitor = gradclip.Monitor(every=1, each=100)
    weight = torch.nn.Parameter(distribute_tensor(torch.zeros(8), world(), [Shard(0)]))
    bias = torch.nn.Parameter(distribute_tensor(torch.zeros(8), world(), [Shard(0)]))
    optimizer = torch.optim.SGD([{"params": [weight, bias]}], lr=0.0)
    optimizer.register_step_pre_hook(step_pre_hook(dialect.clip_grad_norm(1.0), monitor=monitor))
    for step in range(6):
        values = torch.ones(8)
        values[0] = math.nan if step in (1, 3) else 1.0
        weight.grad = distribute_tensor(values, world(), [Shard(0)])
        bias.grad = distribute_tensor(torch.ones(8), world(), [Shard(0)])
        optimizer.step()
    agree(monitor.culprits)
    assert monitor.culprits is not None
    names, step = monitor.culprits
    assert (len(names), step) == (1, 3)


def check_a_restart() -> None:
    """All processes load the state of one, and agree again."""
    adaptive = gradclip.Adaptive(limits.quantile(0.9, warmup=5))
    rule = dialect.clip_grad_norm(adaptive)
    for step in range(20):
        if step == 10:
            saved: list[Any] = [json.dumps(adaptive.state_dict()) if dist.get_rank() == 0 else ""]
            dist.broadcast_object_list(saved)
            adaptive = gradclip.Adaptive(limits.quantile(0.9, warmup=5))
            adaptive.load_state_dict(json.loads(saved[0]))
            rule = dialect.clip_grad_norm(adaptive)
        gradclip.clip_([share(step, dist.get_rank())], rule, reduce=dist.group.WORLD)
    agree(adaptive.state)
    whole_run = gradclip.Adaptive(limits.quantile(0.9, warmup=5))
    for step in range(20):
        whole_run.step(exact(whole(step), 2.0))
    assert abs(float(adaptive.last) - float(whole_run.last)) <= 1e-6


def check_processes_that_train_apart_are_merged() -> None:
    """Each process has its own norms; their monitors merge into one."""
    mine = gradclip.Monitor()
    for step in range(20):
        mine.update(gradclip.clip([share(step, dist.get_rank())], dialect.clip_grad_norm(1.0)))
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, json.dumps(mine.state_dict()))
    merged = gradclip.Monitor()
    for state in states:
        one = gradclip.Monitor()
        one.load_state_dict(json.loads(state))
        merged.merge(one)
    agree([repr(x) for x in merged.report().values()])
    assert merged.report()["steps"] == 20 * dist.get_world_size()


def check_each_gradient_costs_one_collective() -> None:
    """With the norms of the parameters, and also where a process lacks a gradient, or has none."""
    size, rank, wide = dist.get_world_size(), dist.get_rank(), randn(8, 3)
    for missing in ("none", "one", "all"):
        params = {f"p{i}": torch.nn.Parameter(distribute_tensor(wide + i, world(), [Shard(0)])) for i in range(2)}
        monitor = gradclip.Monitor(each=1)
        with_ = [] if missing == "all" and rank == 0 else ["p1"] if missing == "one" and rank == 0 else list(params)
        for name in with_:
            params[name].grad = distribute_tensor(wide, world(), [Shard(0)], src_data_rank=None)
        with Traffic() as traffic:
            monitor.measure(params)
        assert len(traffic.sent) == 1, missing
        want = wide.clone()
        if missing != "none":
            want[: 8 // size] = 0
        for seen in monitor.gradients():
            norm = exact([want], 2.0) if seen.name == "p0" or missing == "all" else exact([wide], 2.0)
            close(seen.ratio * exact([wide + int(seen.name[1])], 2.0), norm)
        assert {seen.name for seen in monitor.gradients()} == set(with_)
