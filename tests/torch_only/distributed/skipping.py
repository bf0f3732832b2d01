"""Skipped steps of sharded models: all processes skip, or none does; parameters, moments and counts stay to the bit."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch_only.distributed.common import agree, as_on_a_device, close, exact, square, world

import gradclip
from gradclip import Group
from gradclip.dialects import torch as dialect

SKIPS = dataclasses.replace(dialect.clip_grad_norm(1.0), skip_above=10.0, if_nonfinite="skip")
SIZES = (100.0, 0.5, 3.0, math.nan, math.inf, 0.25, 100.0, 2.0)  # the first step is skipped too
TAKEN = tuple(size for size in SIZES if size <= 10)
OPTIMIZERS: dict[str, Any] = {
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=0.1, weight_decay=0.1, foreach=False),
    "AdamW foreach": lambda ps: torch.optim.AdamW(ps, lr=0.1, weight_decay=0.1, foreach=True),
    "AdamW fused": lambda ps: torch.optim.AdamW(ps, lr=0.1, weight_decay=0.1, fused=True),
    "SGD momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.1),
}


def sharded() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 1))  # the last bias has one row: other processes have none of it
    for layer in model:
        fully_shard(layer, mesh=world())
    fully_shard(model, mesh=world())
    return model


def give(model: nn.Module, size: float) -> None:
    """Gradients of this norm over all processes. A NaN or an infinity is on the last process only."""
    params = list(model.parameters())
    count = sum(p.numel() for p in params)
    for i, p in enumerate(params):
        x = torch.full(p.shape, (size if math.isfinite(size) else 1.0) / math.sqrt(count))
        if i == 0 and not math.isfinite(size):
            x[-1, 2] = size
        p.grad = distribute_tensor(x, p.device_mesh, p.placements)


def bits(model: nn.Module, optimizer: Any) -> list[list[torch.Tensor]]:
    """This process's part of each parameter, and of its moments and counts."""
    found = []
    for p in model.parameters():
        state = optimizer.state.get(p, {})
        tensors = [p.detach(), *(state[name] for name in sorted(state))]
        found.append([x.to_local().clone() if isinstance(x, DTensor) else x.clone() for x in tensors])
    return found


def equal(one: list[list[torch.Tensor]], other: list[list[torch.Tensor]]) -> bool:
    return all(len(x) == len(y) and all(map(torch.equal, x, y)) for x, y in zip(one, other, strict=True))


def trained(name: str, sizes: tuple[float, ...], rule: Any) -> Any:
    """Train, and check each step that is to be skipped."""
    model = sharded()
    optimizer = gradclip.clipped(OPTIMIZERS[name](model.parameters()), rule)
    for size in sizes:
        give(model, size)
        bad = sum(int((~p.grad.to_local().isfinite()).sum()) for p in model.parameters())
        assert bad == (0 if math.isfinite(size) or dist.get_rank() < dist.get_world_size() - 1 else 1)
        before = bits(model, optimizer)
        optimizer.step()
        skip = bool(optimizer.gradclip.last.skip)
        agree(skip)
        assert skip == (not size <= 10)
        after = bits(model, optimizer)
        made_state = len(before[0]) != len(after[0])  # a fused optimizer makes it in the first step, also in a skipped one
        assert made_state or equal(before, after) == skip, (name, size)
        assert skip == all(torch.equal(x[0], y[0]) for x, y in zip(before, after, strict=True)), (name, size)
    return bits(model, optimizer), optimizer.gradclip


def check_fsdp2_skips_on_all_processes_or_on_none() -> None:
    """Training goes on as if the skipped steps had never been."""
    for name in OPTIMIZERS:
        for where in (contextlib.nullcontext, as_on_a_device):
            with where():
                got, hook = trained(name, SIZES, SKIPS)
                want, _ = trained(name, TAKEN, SKIPS)
            assert equal(got, want), name
            assert (hook.skipped, hook.skipped_in_a_row) == (4, 0)


def check_fsdp2_without_a_skip_differs() -> None:
    """The same steps with the clip alone move the parameters: what the other check compares can differ."""
    model = sharded()
    optimizer = gradclip.clipped(OPTIMIZERS["AdamW"](model.parameters()), dialect.clip_grad_norm(1.0))
    before = bits(model, optimizer)
    give(model, 100.0)
    optimizer.step()
    assert not torch.equal(before[0][0], bits(model, optimizer)[0][0])


def check_fsdp2_skips_above_a_limit_that_follows_the_run() -> None:
    spikes = gradclip.Adaptive(gradclip.limits.spike(4.0, warmup=2))
    rule = dataclasses.replace(dialect.clip_grad_norm(1.0), skip_above=spikes)
    model = sharded()
    optimizer = gradclip.clipped(OPTIMIZERS["AdamW fused"](model.parameters()), rule)
    found = []
    for size in (1.0, 1.5, 1.0, 100.0, 1.0):
        give(model, size)
        before = bits(model, optimizer)
        optimizer.step()
        found.append(bool(optimizer.gradclip.last.skip))
        assert equal(before, bits(model, optimizer)) == found[-1]
    assert found == [False, False, False, True, False]
    agree(optimizer.state_dict()["gradclip"])


def check_4_stages_of_a_pipeline_skip_together() -> None:
    """Each stage is sharded, its part of a group may be missing or plain experts: all have the group's norm, and skip."""
    grid = square()
    stage, expert = grid.get_local_rank("dp"), grid.get_local_rank("tp")
    weights = [torch.full((5, 2), 1.0 + at) for at in range(2)]
    params = {
        "weight": nn.Parameter(distribute_tensor(torch.zeros(5, 2), grid["tp"], [Shard(0)])),
        "bias": nn.Parameter(distribute_tensor(torch.zeros(3), grid["tp"], [Shard(0)])),
        "experts.w": nn.Parameter(torch.zeros(2)),
    }
    params["weight"].grad = distribute_tensor(weights[stage], grid["tp"], [Shard(0)])
    params["bias"].grad = distribute_tensor(torch.full((3,), 12.0), grid["tp"], [Shard(0)]) if stage == 0 else None
    params["experts.w"].grad = torch.full((2,), 1.0 + 2 * stage + expert)
    groups = [Group(dialect.clip_grad_norm(1.0), "weight"), Group(SKIPS, ["bias", "experts.*"])]
    result = gradclip.clip_(params, groups, reduce=grid["dp"], shards={"experts.*": grid["tp"]})
    close(result.norm[0], exact(weights, 2.0))
    close(result.norm[1], exact([torch.full((3,), 12.0), *(torch.full((2,), 1.0 + at) for at in range(4))], 2.0))
    assert bool(result.skip)
    agree([float(n) for n in result.norm])
