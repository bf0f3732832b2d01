"""Wrong norms that people have reported, replayed: the reporter's number, by the reporter's arithmetic, and the right one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch_only.distributed import threads

import gradclip


def on(size: int, function: Callable[[], Any]) -> list[Any]:
    """Return what a function returns on each of several ranks."""
    with threads.ranks(size) as made:
        found, failed = made.run(function)
    assert not failed, failed
    return found


def of_norm(norm: float, *shape: int) -> torch.Tensor:
    """Return a gradient of this norm, of equal elements."""
    return torch.full(shape, norm / math.sqrt(math.prod(shape)))


def with_grads(**grads: torch.Tensor) -> dict[str, torch.nn.Parameter]:
    made = {}
    for name, grad in grads.items():
        made[name] = torch.nn.Parameter(torch.zeros_like(grad))
        made[name].grad = grad
    return made


def square(grads: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([x.double().square().sum() for x in grads]).sum()


def summed(x: torch.Tensor, group: Any = None) -> torch.Tensor:
    dist.all_reduce(x, group=group)
    return x


def sharded(x: torch.Tensor, placement: Any = None) -> DTensor:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return distribute_tensor(x, mesh, [placement or Shard(0)])


def near(got: Any, want: float) -> None:
    assert float(got) == pytest.approx(want, rel=2e-6)


# ---- replicas that count several times ------------------------------------------------------------------------------------


def test_replicas_under_tensor_parallelism() -> None:
    """https://github.com/NVIDIA-NeMo/RL/pull/3788: the sum over the tensor-parallel group counts each replica once a rank."""

    def replay() -> Any:
        params = with_grads(projection=sharded(of_norm(3.0, 4, 2)), layer_norm=sharded(of_norm(4.0, 8), Replicate()))
        reported = summed(square([p.grad.to_local() for p in params.values() if isinstance(p.grad, DTensor)])).sqrt()
        return reported, gradclip.clip_grad_norm_(params, 1.0).full_tensor()

    for reported, ours in on(4, replay):
        near(reported, math.sqrt(9 + 4 * 16))
        near(ours, 5.0)


def test_replicas_marked_as_shards() -> None:
    """https://github.com/ROCm/TransformerEngine/pull/715: 3.763 for 2.472 on 8 ranks, as each weight has the mark of shards."""
    replica = math.sqrt((3.763**2 - 2.472**2) / 7)
    shards = math.sqrt(2.472**2 - replica**2)

    def replay() -> Any:
        params = with_grads(split=of_norm(shards, 8, 2).chunk(8)[dist.get_rank()].clone(), whole=of_norm(replica, 6))
        is_counted = lambda p: p.tensor_model_parallel or dist.get_rank() == 0  # noqa: E731, of megatron's duplicates filter
        for p in params.values():
            p.tensor_model_parallel = True  # type: ignore[attr-defined]
        reported = summed(square([p.grad for p in params.values() if p.grad is not None and is_counted(p)])).sqrt()
        return reported, gradclip.clip_grad_norm_(params, 1.0, shards={"split": dist.group.WORLD})

    for reported, ours in on(8, replay):
        near(reported, 3.763)
        near(ours, 2.472)


def test_parameters_that_fsdp_ignores() -> None:
    """https://github.com/mindspore-ai/hyper-parallel/issues/526: 48 for 28 on 8 ranks: the shards' group sums replicas."""
    replica = math.sqrt((48**2 - 28**2) / 7)
    shards = math.sqrt(28**2 - replica**2)

    def replay() -> Any:
        params = with_grads(weight=sharded(of_norm(shards, 16, 2)), bias=of_norm(replica, 5))
        local = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in params.values()]
        return summed(square([x for x in local if x is not None])).sqrt(), gradclip.clip_grad_norm_(params, 1.0)

    for reported, ours in on(8, replay):
        near(reported, 48.0)
        near(ours, 28.0)


def test_fsdp_without_shards() -> None:
    """https://github.com/pytorch/pytorch/issues/88621: under NO_SHARD each gradient counted once a rank, unlike under DDP."""

    def replay() -> Any:
        params = with_grads(a=of_norm(3.0, 4), b=of_norm(4.0, 2, 2))
        reported = summed(square([p.grad for p in params.values() if p.grad is not None])).sqrt()
        return reported, gradclip.clip_grad_norm_(params, 1.0, shards={})

    for reported, ours in on(4, replay):
        near(reported, 5.0 * math.sqrt(4))
        near(ours, 5.0)


# ---- experts ---------------------------------------------------------------------------------------------------------------


def test_experts_beside_dense_shards() -> None:
    """https://github.com/NVIDIA-NeMo/Automodel/issues/3816: 40.199502 on one rank and 4.019950 on the other, for 40.201493.

    The one dense weight is then clipped to 0.02487593 on one rank and to 0.2487592 on the other.
    """

    def replay() -> Any:
        expert = of_norm((40.0, 0.4)[dist.get_rank()], 4)
        params = with_grads(dense=sharded(torch.ones(16)), expert=expert)
        dense = params["dense"].grad
        assert isinstance(dense, DTensor)
        reported = (summed(square([dense.to_local()])) + square([expert])).sqrt()
        ours = gradclip.clip_grad_norm_(params, 1.0, shards={"expert": dist.group.WORLD})
        return reported, ours, dense.to_local()[0]

    (first, ours, dense), (second, ours_too, dense_too) = on(2, replay)
    near(first, 40.199502)
    near(second, 4.019950)
    near(ours, 40.201493)
    assert ours == ours_too
    near(dense, 1 / 40.201494)
    assert dense == dense_too


def test_norms_of_experts_that_are_averaged() -> None:
    """https://github.com/deepspeedai/DeepSpeed/pull/8478: the mean of two ranks' norms, 7.236068 for 10.954452."""

    def replay() -> Any:
        params = with_grads(**{f"expert{i}": torch.full((4,), float(i + 1 + 2 * dist.get_rank())) for i in range(2)})
        reported = summed(square([p.grad for p in params.values() if p.grad is not None]).sqrt() / dist.get_world_size())
        return reported, gradclip.clip_grad_norm_(params, 1.0, shards={"*": dist.group.WORLD})

    for reported, ours in on(2, replay):
        near(reported, 7.236068)
        near(ours, 10.954452)


def test_experts_that_are_left_out() -> None:
    """https://github.com/NVIDIA/Megatron-LM/pull/5916: all but the first tensor-parallel rank drop their own experts."""

    def replay() -> Any:
        params = with_grads(dense=of_norm(3.0, 4), expert=of_norm(2.0, 2 + dist.get_rank()))
        params["expert"].allreduce = False  # type: ignore[attr-defined]
        mine = [p.grad for p in params.values() if p.grad is not None and dist.get_rank() == 0]
        reported = summed(square(mine) if mine else torch.zeros((), dtype=torch.float64)).sqrt()
        group = dist.group.WORLD
        shards = lambda name, p: group if getattr(p, "allreduce", True) is False else None  # noqa: E731
        return reported, gradclip.clip_grad_norm_(params, 1.0, shards=shards)

    for reported, ours in on(4, replay):
        near(reported, math.sqrt(9 + 4))
        near(ours, math.sqrt(9 + 4 * 4))


# ---- local norms -----------------------------------------------------------------------------------------------------------


def test_a_clip_of_local_shards() -> None:
    """https://github.com/sgl-project/SpecForge/pull/663: each rank clips its own shard by its own norm."""
    whole = torch.arange(1.0, 9.0)

    def replay() -> Any:
        shard = whole.chunk(2)[dist.get_rank()]
        theirs, params = with_grads(flat=shard.clone()), with_grads(flat=shard.clone())
        reported = torch.nn.utils.clip_grad_norm_(theirs.values(), 1.0)
        ours = gradclip.clip_grad_norm_(params, 1.0, shards={"flat": dist.group.WORLD})
        return reported, theirs["flat"].grad, ours, params["flat"].grad

    (first, low, ours, left), (second, high, _, right) = on(2, replay)
    near(first, math.sqrt(1 + 4 + 9 + 16))
    near(second, math.sqrt(25 + 36 + 49 + 64))
    near(ours, math.sqrt(204))
    near(torch.cat([low, high]).norm(), math.sqrt(2))  # twice the limit's square, in another direction
    torch.testing.assert_close(torch.cat([left, right]), whole / math.sqrt(204))


def test_a_norm_that_depends_on_the_number_of_ranks() -> None:
    """https://github.com/areal-project/AReaL/issues/312: the norm of the local shards, so more ranks clip less."""

    def replay() -> Any:
        params = with_grads(weight=sharded(of_norm(6.0, 8, 2)))
        grad = params["weight"].grad
        assert isinstance(grad, DTensor)
        return square([grad.to_local()]).sqrt(), gradclip.clip_grad_norm_(params, 1.0).full_tensor()

    for size in (2, 4, 8):
        for reported, ours in on(size, replay):
            near(reported, 6.0 / math.sqrt(size))
            near(ours, 6.0)


def test_a_norm_that_is_partial() -> None:
    """https://github.com/pytorch/pytorch/issues/170862: the norm of FSDP2's gradients is each rank's own."""

    def replay() -> Any:
        whole = torch.arange(1.0, 9.0)
        theirs = torch.linalg.vector_norm(sharded(whole))  # what torch 2.9's clip returned for one gradient
        assert isinstance(theirs, DTensor)
        return theirs.to_local(), gradclip.clip_grad_norm_(with_grads(weight=sharded(whole)), 1.0).to_local()

    (first, ours), (second, ours_too) = on(2, replay)
    near(first, math.sqrt(30))
    near(second, math.sqrt(174))
    near(ours, math.sqrt(204))
    assert ours == ours_too


# ---- other layers, other meshes --------------------------------------------------------------------------------------------


def test_a_pipeline() -> None:
    """https://github.com/pytorch/torchtitan/issues/596: each stage clips by the norm of its own layers."""

    def replay() -> Any:
        grads = [of_norm(1.0 + dist.get_rank(), 3)]
        reported = torch.nn.utils.clip_grad_norm_(with_grads(layer=grads[0].clone()).values(), 1.0)
        return reported, gradclip.clip_grad_norm_(with_grads(layer=grads[0]), 1.0, reduce=dist.group.WORLD)

    for rank, (reported, ours) in enumerate(on(4, replay)):
        near(reported, 1.0 + rank)
        near(ours, math.sqrt(1 + 4 + 9 + 16))


def test_parameters_that_the_plan_leaves_out() -> None:
    """https://github.com/meta-pytorch/torchtune/issues/2420: the native clip raises an error, so there is no norm at all.

    Tensor parallelism makes DTensors of some gradients, and leaves the others plain.
    """

    def replay() -> Any:
        params = with_grads(weight=sharded(of_norm(3.0, 4)), norm=of_norm(4.0, 2))
        with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
            torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        return gradclip.clip_grad_norm_(params, 1.0)

    for ours in on(2, replay):
        near(ours, 5.0)
