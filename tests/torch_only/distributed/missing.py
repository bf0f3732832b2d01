"""Ranks that have other gradients than the rest, or refuse a call: the collectives follow from the parameters alone."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch_only.distributed.common import MARKS, Traffic, agree, as_on_a_device, close, square, world

import gradclip
from gradclip.core.errors import GradclipWarning
from gradclip.dialects import tensorflow
from gradclip.dialects import torch as dialect

RULE = dialect.clip_grad_norm(1.0)
KINDS = {"P": Partial(), "A": Partial("avg"), "S": Shard(0), "R": Replicate()}


def gradient(kind: str, size: int) -> torch.Tensor:
    """Return this rank's gradient of eight threes: a part, a copy, an addend, or a plain tensor."""
    x = torch.full((8 // size if kind == "S" else 8,), 3.0)
    if kind == "plain":
        return x
    return DTensor.from_local(x, world(), [KINDS[kind]], run_check=False, shape=torch.Size([8]), stride=(1,))


def norm_of(kind: str, having: int, size: int) -> float:
    if kind == "S":
        return 3.0 * (8 // size * having) ** 0.5
    return 3.0 * 8**0.5 * {"P": having, "A": having / size}.get(kind, 1)


def check_a_gradient_that_is_placed_otherwise_and_that_a_rank_lacks() -> None:
    """As sequence parallelism leaves it: nobody waits, all have one norm, and it counts what is there."""
    size = dist.get_world_size()
    for of_param in ("R", "S"):
        for kind in ("P", "A", "S", "R", "plain"):
            for missing in (None, 0, size - 1):
                w = torch.nn.Parameter(distribute_tensor(torch.zeros(8), world(), [KINDS[of_param]]))
                if dist.get_rank() != missing:
                    w.grad = gradient(kind, size)
                having = size - (missing is not None)
                result = gradclip.clip_([w], RULE)
                close(result.norm, norm_of(kind, having, size))
                agree(result.norm)
                if w.grad is not None:
                    local = w.grad.to_local() if isinstance(w.grad, DTensor) else w.grad
                    close(local[0], 3.0 * float(result.coefficient), at_most=16)
                if of_param == "R" and kind in ("R", "plain") and missing == 0:
                    _first_replica_lacks(w)
                    continue
                with as_on_a_device():
                    agree(torch.tensor(float(gradclip.norm([w], RULE))))  # a rank without a tensor has one of float32


def _first_replica_lacks(w: torch.nn.Parameter) -> None:
    """On an accelerator only the rank without the gradient reads that others have it."""
    told = contextlib.nullcontext()
    if dist.get_rank() == 0:
        told = pytest.raises(ValueError, match="This process lacks a gradient that others have")
    with as_on_a_device(), told:
        gradclip.norm([w], RULE)


def check_a_frozen_weight_needs_no_agreement() -> None:
    frozen = torch.nn.Parameter(distribute_tensor(torch.zeros(8), world(), [Shard(0)]), requires_grad=False)
    other = torch.nn.Parameter(distribute_tensor(torch.zeros(8), world(), [Shard(0)]))
    other.grad = gradient("S", dist.get_world_size())
    with Traffic() as traffic:
        gradclip.clip_([frozen, other], RULE)
    assert traffic.sent == [16 + MARKS]


def check_what_it_costs() -> None:
    """One exchange of norms; with addends, one sum more. Only a rank that lacks a replica costs another round."""
    size = dist.get_world_size()
    for of_param, kind, count in (("S", "S", 1), ("R", "R", 1), ("R", "P", 2)):
        w = torch.nn.Parameter(distribute_tensor(torch.zeros(8), world(), [KINDS[of_param]]))
        w.grad = gradient(kind, size)
        with Traffic() as traffic:
            gradclip.clip_([w], RULE)
        assert len(traffic.sent) == count, (of_param, kind, traffic.sent)


def check_a_gradient_whose_mesh_nobody_can_know() -> None:
    w = torch.nn.Parameter(torch.zeros(8))
    w.grad = gradient("P", dist.get_world_size())
    with pytest.raises(ValueError, match="A gradient is placed on a mesh, and its parameter is not"):
        gradclip.norm([w], RULE)


def refused(call: Any, rank: int, error: type[Exception]) -> None:
    """Assert that all ranks raise: one its own error, the others one that names it."""
    if dist.get_rank() == rank:
        with pytest.raises(error):
            call()
        return
    with pytest.raises(ValueError, match="Another process has refused this clip") as told:
        call()
    assert f"Received: rank {rank}: {error.__name__}" in str(told.value)


def check_what_one_rank_refuses_is_told_to_all() -> None:
    size, last = dist.get_world_size(), dist.get_world_size() - 1
    errors = {"placement": gradclip.core.errors.ArgumentError, "read-only": gradclip.core.errors.NotWritableError}
    for kind, error in errors.items():
        w = torch.nn.Parameter(distribute_tensor(torch.zeros(8), world(), [Shard(0)]))
        w.grad = gradient("S", size)
        if dist.get_rank() == last:
            local = torch.ones(1).expand(8 // size) if kind == "read-only" else torch.ones(8 // size)
            placement = Partial("product") if kind == "placement" else Shard(0)
            w.grad = DTensor.from_local(local, world(), [placement], run_check=False, shape=torch.Size([8]), stride=(1,))
        for rule in (RULE, tensorflow.clip_by_norm(1.0, axes=[0])):  # along axes the ranks that share a slice hear of it
            refused(lambda w=w, rule=rule: gradclip.clip_([w], rule), last, error)
    given = {"a": torch.ones(3), "b": torch.ones(2)}
    if dist.get_rank() == last:
        given["b"] = torch.ones(1).expand(2)
    refused(lambda: gradclip.clip_(given, RULE, reduce=dist.group.WORLD), last, gradclip.core.errors.NotWritableError)


def check_a_refusal_that_the_others_do_not_know_of_and_a_nan() -> None:
    """On an accelerator only rank 0 reads that it lacks a replica; the others read the NaN, and ask all whose it is."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    replica, shard = (
        torch.nn.Parameter(distribute_tensor(torch.zeros(8), world(), [kind])) for kind in (Replicate(), Shard(0))
    )
    shard.grad = gradient("S", dist.get_world_size())
    if rank:
        replica.grad = gradient("R", dist.get_world_size())
    if rank == last:
        shard.grad.to_local()[0] = torch.nan
    message = "the total norm of order 2.0" if rank else "This process lacks a gradient that others have"
    with as_on_a_device(), pytest.raises((ValueError, RuntimeError), match=f"(?i){message}") as error:
        gradclip.clip_([replica, shard], dialect.clip_grad_norm(1.0, error_if_nonfinite=True))
    assert not rank or f"rank {last}: " in str(error.value)


# ---- replicas by evidence ----------------------------------------------------------------------------------------------------


def check_experts_that_are_frozen_at_first() -> None:
    """A clip counts for the replicas that had gradients in it, so the check is still there for experts that come later."""
    rank = dist.get_rank()
    for frozen, having, zeros in ((3, None, False), (7, None, False), (5, 1, False), (4, None, True)):
        dense = torch.nn.Parameter(distribute_tensor(torch.zeros(4), world(), [Shard(0)]))
        replica, expert = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))
        params = {"dense": dense, "norm": replica, "expert": expert}
        for step in range(frozen + 1):
            dense.grad = distribute_tensor(torch.ones(4), world(), [Shard(0)])
            replica.grad = torch.ones(2)
            expert.grad = torch.zeros(2) if zeros else None
            if step < frozen:
                gradclip.clip_(params, RULE)
                continue
            if having in (None, rank):
                expert.grad = torch.full((2,), 10.0 * (rank + 1))
            with pytest.raises(ValueError, match="must be the same on every process, and these differ") as error:
                gradclip.clip_(params, RULE)
            assert "'expert'" in str(error.value)
            agree(str(error.value))


def check_experts_that_come_later_on_a_device() -> None:
    """No value is free there: all ranks read in the same clips, as long as a replica has had no gradient."""
    dense = torch.nn.Parameter(distribute_tensor(torch.zeros(4), world(), [Shard(0)]))
    expert = torch.nn.Parameter(torch.zeros(2))
    with as_on_a_device():
        for step in range(7):
            dense.grad = distribute_tensor(torch.ones(4), world(), [Shard(0)])
            if step < 6:
                gradclip.clip_([dense, expert], RULE)
        expert.grad = torch.full((2,), 1.0 + dist.get_rank())
        with pytest.raises(ValueError, match="must be the same on every process, and these differ"):
            gradclip.clip_([dense, expert], RULE)


def check_a_plain_fsdp2_step_reads_nothing() -> None:
    dense = torch.nn.Parameter(distribute_tensor(torch.zeros(4), world(), [Shard(0)]))
    reads: list[Any] = []
    backend = type(gradclip.core.registry.home("torch"))
    tolist = backend.tolist
    with as_on_a_device(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "tolist", lambda self, x: reads.append(x) or tolist(self, x))
        for step in range(70):
            reads.clear()
            dense.grad = distribute_tensor(torch.ones(4), world(), [Shard(0)])
            with Traffic() as traffic:
                gradclip.clip_([dense], RULE)
            assert len(traffic.sent) == 1
            assert step < 3 or not reads, step


# ---- reduce= on replicas -----------------------------------------------------------------------------------------------------


def summed(power: torch.Tensor) -> None:
    dist.all_reduce(power)


def check_replicas_that_are_added_up() -> None:
    same = torch.randn(5, generator=torch.Generator().manual_seed(1))
    for device in (False, True):
        for reduce in (dist.group.WORLD, world()):
            p = torch.nn.Parameter(torch.zeros(5))
            p.grad = same.clone()
            with as_on_a_device() if device else contextlib.nullcontext(), pytest.warns(GradclipWarning) as told:
                gradclip.clip_([p], RULE, reduce=reduce)
            assert str(told[0].message).startswith("reduce= adds up gradients that are the same on every process")
            assert "Hint: leave reduce= out for replicas" in str(told[0].message)
            assert f"Received: equal norms on ranks {list(range(dist.get_world_size()))}" in str(told[0].message)
            gradclip.clip_([p], RULE, reduce=reduce)  # once is enough
    p = torch.nn.Parameter(torch.zeros(5))
    for step in range(2):
        p.grad = same * (step + 1.25)
        gradclip.norm([p], RULE, reduce=summed)
    p.grad = same * 4.5
    with pytest.warns(GradclipWarning, match=r"reduce= adds up(.|\n)*a multiple of this process's own"):
        gradclip.norm([p], RULE, reduce=summed)


def check_what_may_be_equal_on_all_ranks() -> None:
    """Zeros, one element, round numbers, other names or shapes, a count, a stage that is alone."""
    rank = dist.get_rank()
    x = torch.randn(5, generator=torch.Generator().manual_seed(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (
            [torch.zeros(5)],
            [x[:1].clone()],
            [torch.full((4,), 3.0)],
            {f"stage{rank}": x.clone()},
            [x.reshape(1, 5).clone()] if rank else [x.clone()],
            [x * (1 + rank)],
        ):
            gradclip.norm(given, RULE, reduce=dist.group.WORLD)
        gradclip.norm([x.clone(), x.clone()], dialect.clip_grad_norm(1.0, 0.0), reduce=dist.group.WORLD)
        gradclip.norm([x.clone()], RULE, reduce=lambda power: power + power)


def check_4_replicas_along_one_axis_of_a_mesh() -> None:
    x = torch.randn(5, generator=torch.Generator().manual_seed(dist.get_rank() // 2))
    p = torch.nn.Parameter(torch.zeros(5))
    p.grad = x
    with pytest.warns(GradclipWarning, match="reduce= adds up"):
        gradclip.clip_([p], RULE, reduce=square())
