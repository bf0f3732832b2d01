"""``reduce=``: other processes have some of the gradients, like the stages of a pipeline."""

from __future__ import annotations

import contextlib
import math
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch_only.distributed.common import MARKS, Traffic, agree, as_on_a_device, close, exact, same, square, world

import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.core.errors import GradclipWarning
from gradclip.dialects import optax, tensorflow
from gradclip.dialects import torch as dialect

ORDERS = (1.0, 2.0, 3.0, math.inf, 0.0, -math.inf)


def stage(rank: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return the gradients of a stage; each stage has other lengths, and one gradient of the first is all zero."""
    generator = torch.Generator().manual_seed(rank)
    made = [torch.randn(2 + rank, 3, generator=generator), torch.randn(5, generator=generator) * (rank > 0)]
    return [x.to(dtype) for x in made]


def all_stages(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [x for rank in range(dist.get_world_size()) for x in stage(rank, dtype)]


def returns(x: torch.Tensor, op: dist.ReduceOp) -> torch.Tensor:
    total = x.clone()
    dist.all_reduce(total, op)
    return total


def in_place(x: torch.Tensor, op: dist.ReduceOp) -> None:
    dist.all_reduce(x, op)


def check_groups_meshes_and_functions() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for order in ORDERS:
            rule, whole = dialect.clip_grad_norm(0.5, order), all_stages(dtype)
            op = {math.inf: dist.ReduceOp.MAX, -math.inf: dist.ReduceOp.MIN}.get(order, dist.ReduceOp.SUM)
            functions = (lambda x, op=op: returns(x, op), lambda x, op=op: in_place(x, op))
            for reduce in (dist.group.WORLD, world(), *functions):
                given = stage(dist.get_rank(), dtype)
                result = gradclip.clip_(given, rule, reduce=reduce)
                close(result.norm, exact(whole, order))
                agree(result.norm)
                want = gradclip.clip(whole, rule).grads
                first = 2 * dist.get_rank()
                same(given, want[first : first + 2])


def check_the_drop_ins() -> None:
    parameters = [torch.nn.Parameter(torch.zeros_like(x)) for x in stage(dist.get_rank())]
    for p, x in zip(parameters, stage(dist.get_rank()), strict=True):
        p.grad = x
    want = torch.nn.utils.get_total_norm(all_stages())
    with Traffic() as traffic:
        got = gradclip.get_total_norm([p.grad for p in parameters], reduce=dist.group.WORLD)
    assert traffic.sent == [8 + MARKS]
    close(got, want)
    clipped = gradclip.clip_grad_norm_(parameters, 0.5, reduce=dist.group.WORLD)
    assert clipped.item() == got.item()
    agree(clipped)
    close(gradclip.get_total_norm([p.grad for p in parameters], reduce=world()), 0.5, at_most=64)  # for the epsilon


def check_the_optimizers_hook() -> None:
    parameters = [torch.nn.Parameter(torch.zeros_like(x)) for x in stage(dist.get_rank())]
    for p, x in zip(parameters, stage(dist.get_rank()), strict=True):
        p.grad = x
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    optimizer.register_step_pre_hook(step_pre_hook(dialect.clip_grad_norm(0.5), reduce=dist.group.WORLD))
    optimizer.step()
    want = gradclip.clip(all_stages(), dialect.clip_grad_norm(0.5)).grads[2 * dist.get_rank() :]
    same([-p.detach() for p in parameters], want[:2])


def check_a_derivative_is_refused() -> None:
    given = [torch.ones(2, requires_grad=True) * 1]
    with pytest.raises(ValueError, match="A clip over several processes has no derivative"):
        gradclip.clip(given, dialect.clip_grad_norm(1.0), reduce=dist.group.WORLD)
    gradclip.clip_(given, dialect.clip_grad_norm(1.0), reduce=dist.group.WORLD)


def check_on_a_device() -> None:
    whole = all_stages()
    with as_on_a_device():
        for reduce in (dist.group.WORLD, lambda x: dist.all_reduce(x)):
            got = gradclip.norm(stage(dist.get_rank()), dialect.clip_grad_norm(1.0), reduce=reduce)
            assert isinstance(got, torch.Tensor)
            close(got, exact(whole, 2.0))


def check_norms_whose_squares_overflow() -> None:
    for scale, dtype in ((1e300, torch.float64), (1e-300, torch.float64), (1e37, torch.float32)):
        whole = [x * scale for x in all_stages(dtype)]
        given = [x * scale for x in stage(dist.get_rank(), dtype)]
        got = gradclip.norm(given, dialect.clip_grad_norm(1.0), reduce=dist.group.WORLD)
        close(got, exact(whole, 2.0), str(dtype).removeprefix("torch."))


def check_a_stage_with_nothing() -> None:
    """A stage without parameters, or without gradients, joins the collective and gets no warning."""
    last = dist.get_world_size() - 1
    whole = [x for rank in range(last) for x in stage(rank)]
    for nothing in ([], [torch.nn.Parameter(torch.zeros(2))]):
        given = [torch.nn.Parameter(x * 0) for x in stage(dist.get_rank())] if dist.get_rank() < last else nothing
        if dist.get_rank() < last:
            for p, x in zip(given, stage(dist.get_rank()), strict=True):
                p.grad = x
        for reduce in (dist.group.WORLD, lambda x: dist.all_reduce(x)):
            got = gradclip.clip_grad_norm_(given, math.inf, reduce=reduce)
            close(got, exact(whole, 2.0))
            agree(got)
        assert gradclip.norm(given, dialect.clip_grad_norm(1.0), reduce=dist.group.WORLD) == pytest.approx(float(got))


def check_nothing_anywhere_is_said() -> None:
    for order in (*ORDERS, -1.0, -2.5):
        for p in (
            torch.nn.Parameter(torch.zeros(2)),
            torch.nn.Parameter(distribute_tensor(torch.zeros(4), world(), [Shard(0)])),
        ):
            reduce = None if isinstance(p.data, DTensor) else dist.group.WORLD
            with pytest.warns(GradclipWarning, match="None of the parameters has a gradient"):
                result = gradclip.clip_([p], dialect.clip_grad_norm(1.0, order), reduce=reduce)
            assert (result.norm, result.coefficient) == (0.0, 1.0), order
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                rule = dialect.clip_grad_norm(1.0, order)
                assert gradclip.norm([], rule, reduce=dist.group.WORLD) == 0.0
        params = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
        params[1].grad = torch.tensor([3.0, 4.0])
        rules = [gradclip.Group(dialect.clip_grad_norm(1.0, order), "0"), gradclip.Group(dialect.clip_grad_norm(1.0, math.inf))]
        for context in (contextlib.nullcontext, as_on_a_device):
            with context():
                result = gradclip.clip(params, rules, reduce=dist.group.WORLD)
            assert list(map(float, result.norm)) == [0.0, 4.0], order
            assert list(map(float, result.coefficient)) == pytest.approx([1.0, 0.25], rel=1e-6), order


def check_infinite_elements_are_not_nothing() -> None:
    """For a negative order infinite elements have an infinite norm; a process without elements does not change it."""
    is_first, rules = dist.get_rank() == 0, [dialect.clip_grad_norm(1.0, order) for order in (-math.inf, -1.0, -2.5)]
    for rule in rules:
        for element, want in ((math.inf, math.inf), (math.nan, math.nan), (3.0, 3.0), (0.0, 0.0)):
            given = [torch.tensor([element])] if is_first else []
            for context in (contextlib.nullcontext, as_on_a_device):
                with context():
                    got = gradclip.norm(given, rule, reduce=dist.group.WORLD)
                agree(got)
                assert float(got) == pytest.approx(want, nan_ok=True), (rule, element)


def check_what_is_refused() -> None:
    given = stage(0)
    for reduce in (0, "world", -100):  # outside of a group, new_group returns -100
        with pytest.raises(TypeError, match="reduce must be a callable or a group of processes"):
            gradclip.norm(given, dialect.clip_grad_norm(1.0), reduce=reduce)
    for rule in (tensorflow.clip_by_norm(1.0), dialect.clip_grad_value(1.0), optax.adaptive_grad_clip(0.1)):
        with pytest.raises(ValueError, match="reduce= is for a rule with one norm over all gradients"):
            gradclip.clip(given, rule, params=given, reduce=dist.group.WORLD)
    with pytest.raises(TypeError, match="reduce must return a 0-d tensor"):
        gradclip.norm(given, dialect.clip_grad_norm(1.0), reduce=lambda x: [x])
    with pytest.raises(TypeError, match="Without any tensor the framework"):
        gradclip.norm([], dialect.clip_grad_norm(1.0), reduce=lambda x: x)


def check_a_mesh_that_the_norm_is_reduced_on_already() -> None:
    mesh = world()
    split = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
    for reduce in (mesh, dist.group.WORLD):
        with pytest.raises(ValueError, match="processes of reduce= already share the norm") as error:
            gradclip.clip_grad_norm_([torch.nn.Parameter(split)], 1.0, reduce=reduce)
        assert "Hint: leave reduce= out" in str(error.value)


def check_4_a_pipeline_of_sharded_stages() -> None:
    """Two stages, each split over two processes: one collective in the stage, one over the stages."""
    grid = square()
    stages, shards = grid["dp"], grid["tp"]
    mine = stages.get_local_rank()
    given = [torch.nn.Parameter(distribute_tensor(x * 0, shards, [Shard(0)])) for x in stage(mine)]
    for p, x in zip(given, stage(mine), strict=True):
        p.grad = distribute_tensor(x, shards, [Shard(0)])
    whole = [*stage(0), *stage(1)]
    with Traffic() as traffic:
        got = gradclip.clip_grad_norm_(given, 0.5, reduce=stages.get_group())
    assert traffic.sent == [16 + MARKS, 8 + MARKS]
    close(got, exact(whole, 2.0))
    agree(got)
    want = gradclip.clip(whole, dialect.clip_grad_norm(0.5)).grads
    same([p.grad for p in given], want[2 * mine : 2 * mine + 2])


def check_4_a_mesh_of_two_dimensions() -> None:
    given, whole = stage(dist.get_rank()), all_stages()
    with Traffic() as traffic:
        got = gradclip.norm(given, dialect.clip_grad_norm(1.0), reduce=square())
    assert traffic.sent == [8 + MARKS] * 2
    close(got, exact(whole, 2.0))
    agree(got)
