"""Trainers that divide plain tensors: FSDP1 itself, and the marks of DeepSpeed and Megatron; and trainers that need nothing."""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch_only.distributed.common import Traffic, agree, close, exact

import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.core.errors import page
from gradclip.dialects import torch as dialect

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch deprecates what it uses itself there
    from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer

RULE = dialect.clip_grad_norm(0.5)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 5), nn.LayerNorm(5))


def loss(model: nn.Module) -> torch.Tensor:
    return 100 * model(torch.randn(4, 8, generator=torch.Generator().manual_seed(1)))[:, 0].square().mean()


def fsdp1(strategy: ShardingStrategy, *, use_orig_params: bool, ignored: bool = False) -> Any:
    """Return a model of FSDP1 with gradients; its last layer may be none of FSDP's."""
    mesh = {}
    if "HYBRID" in strategy.name:
        mesh["device_mesh"] = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replica", "shard"))
    model = net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FSDP1 is deprecated, and says that it runs on CPUs
        made = FullyShardedDataParallel(
            model,
            sharding_strategy=strategy,
            use_orig_params=use_orig_params,
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
            ignored_modules=[model[3]] if ignored else None,
            device_id=torch.device("cpu"),
            **mesh,
        )
        loss(made).backward()
    return made


def check_fsdp1() -> None:
    """Without ``shards=`` an error, with the line of its hint the norm of the whole model; replicas of FSDP1 need nothing."""
    whole = net()
    loss(whole).backward()
    want = exact([p.grad for p in whole.parameters()], 2.0)
    for strategy in ShardingStrategy:
        if "HYBRID" in strategy.name and dist.get_world_size() < 4:
            continue
        for use_orig_params in (False, True):
            model = fsdp1(strategy, use_orig_params=use_orig_params, ignored=strategy is not ShardingStrategy.NO_SHARD)
            params = dict(model.named_parameters())
            is_whole = strategy is ShardingStrategy.NO_SHARD
            if not is_whole or use_orig_params:
                with pytest.raises(ValueError, match="FullyShardedDataParallel may have divided these gradients") as error:
                    gradclip.clip_grad_norm_(params, 0.5)
                assert "model.process_group if getattr(p" in str(error.value)
                assert "NO_SHARD every process has all gradients: shards={}" in str(error.value)
                assert page("distributed.md#fsdp1") in str(error.value)
            shards = (
                {} if is_whole else lambda name, p, m=model: m.process_group if getattr(p, "_fsdp_flattened", False) else None
            )
            with Traffic() as traffic:
                got = gradclip.clip_grad_norm_(params, 0.5, shards=shards)
            assert len(traffic.sent) == int(not is_whole)
            close(got, want, at_most=64)
            agree(got)
            close(gradclip.norm(params, RULE, shards=shards), 0.5, at_most=64)
            if is_whole and not use_orig_params:
                close(gradclip.clip_grad_norm_(params, 0.5), 0.5, at_most=64)
            gradclip.clip_grad_value_(params, 1e-3)  # by value, and by a known norm, a shard needs no other
            gradclip.scale_by_norm_(params, RULE, got)


def marked(**marks: Any) -> nn.Parameter:
    p = nn.Parameter(torch.zeros(8))
    p.grad = torch.full((8,), 1.0 + dist.get_rank())
    for name, value in marks.items():
        setattr(p, name, value)
    return p


def check_the_marks_of_trainers() -> None:
    size = dist.get_world_size()
    want = sum(8 * (1 + rank) ** 2 for rank in range(size)) ** 0.5
    state = types.ModuleType("megatron.core.parallel_state")
    cases = [
        ("deepspeed", "DeepSpeed's ZeRO", {"ds_tensor": None, "ds_numel": 8 * size, "ds_process_group": dist.group.WORLD}),
        ("megatron", "allreduce=False", {"allreduce": False}),
        ("megatron", "tensor_model_parallel", {"tensor_model_parallel": True}),
    ]
    for module, mark, marks in cases:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, module, types.ModuleType(module))
            p = marked(**marks)
            for call in (lambda p=p: gradclip.clip_grad_norm_(p, 1.0), lambda p=p: gradclip.norm({"w": p}, RULE)):
                with pytest.raises(ValueError, match=mark) as error:
                    call()
                assert "Hint: shards=lambda name, p: " in str(error.value)
                section = "deepspeed-zero" if module == "deepspeed" else "megatron"
                assert page(f"distributed.md#{section}") in str(error.value)
            group = (lambda name, p: p.ds_process_group) if module == "deepspeed" else (lambda name, p: dist.group.WORLD)
            close(gradclip.norm(p, RULE, shards=group), want)
            close(gradclip.norm(p, RULE, reduce=dist.group.WORLD), want)
            close(gradclip.norm(p, RULE, shards={}), exact([p.grad], 2.0))
            gradclip.clip_grad_value_(p, 1.0)
    whole = {"ds_tensor": None, "ds_numel": 8}
    state.get_tensor_model_parallel_world_size = lambda: 1
    with pytest.MonkeyPatch.context() as patch:
        for module in ("deepspeed", "megatron"):
            patch.setitem(sys.modules, module, types.ModuleType(module))
        patch.setitem(sys.modules, state.__name__, state)
        for marks in (whole, {"tensor_model_parallel": True, "allreduce": True}, {"tensor_model_parallel": False}):
            p = marked(**marks)
            close(gradclip.norm(p, RULE), exact([p.grad], 2.0))


def check_local_sgd_and_a_sharded_optimizer() -> None:
    """Each process clips its own gradients before models are averaged; DDP has averaged them for the other."""
    model = net()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    averaged = PostLocalSGDOptimizer(inner, PeriodicModelAverager(period=2))
    hook = step_pre_hook(RULE)
    inner.register_step_pre_hook(hook)
    (loss(model) * (1 + dist.get_rank())).backward()
    want = exact([p.grad for p in model.parameters()], 2.0)
    averaged.step()
    close(hook.last.norm, want)
    agree([p.detach() for p in model.parameters()])

    model = nn.parallel.DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    loss(model).backward()
    want = exact([p.grad for p in model.parameters()], 2.0)
    close(gradclip.clip_grad_norm_(model.parameters(), 0.5), want)
    optimizer.step()
    agree([p.detach() for p in model.parameters()])
