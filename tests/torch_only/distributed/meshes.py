"""Placements and meshes: replicas, partial sums, two dimensions, several meshes and full tensors in one call; and errors."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _MaskPartial
from torch_only.distributed.common import MARKS, Traffic, agree, close, exact, same, square, world

import gradclip
from gradclip.backends.torch import dtensor
from gradclip.dialects import torch as dialect

RULE = dialect.clip_grad_norm(0.5)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check_replicas_count_once() -> None:
    x, mesh = randn(3, 4), world()
    for placement in (Replicate(), Shard(0), Shard(1)):
        got = gradclip.norm([distribute_tensor(x, mesh, [placement])], RULE)
        close(got, exact([x], 2.0))
    replica = distribute_tensor(x, mesh, [Replicate()])
    with Traffic() as traffic:
        gradclip.norm([replica], RULE)
    assert traffic.sent == []


def check_replicas_that_differ_give_one_norm() -> None:
    """Replicas must not differ, but may after a bug: all get the first one's norm, if any gradient is split."""
    mesh = world()
    differs = DTensor.from_local(torch.tensor([3.0 + dist.get_rank()]), mesh, [Replicate()], run_check=False)
    agree(gradclip.norm([differs, distribute_tensor(torch.tensor([4.0, 0.0]), mesh, [Shard(0)])], RULE))


def check_sums_are_summed_first() -> None:
    mesh, rank, size = world(), dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for kind, factor in (("sum", float(size)), ("avg", 1.0), ("max", 1.0), ("min", 1.0)):
            x = randn(4, 3).to(dtype)
            addends = [DTensor.from_local(x * 1, mesh, [Partial(kind)], run_check=False) for _ in range(3)]
            other = distribute_tensor(randn(5), mesh, [Shard(0)])
            want = exact([*(x.double() * factor for _ in range(3)), randn(5)], 2.0)
            with Traffic() as traffic:
                result = gradclip.clip_([*addends, other], RULE)
            close(result.norm, want)
            agree(result.norm)
            assert len(traffic.sent) == 2, "one for the three sums, one for the norm"
            assert addends[0].placements == (Partial(kind),)
            if dtype == torch.float32:
                same(addends, [x * factor * result.coefficient] * 3)
    uneven = DTensor.from_local(torch.full((2,), float(rank + 1)), mesh, [Partial()], run_check=False)
    close(gradclip.norm([uneven], RULE), 2**0.5 * size * (size + 1) / 2)
    with pytest.raises(ValueError, match="summed over processes cannot be clipped by value"):
        gradclip.clip_([uneven], dialect.clip_grad_value(1.0))


def check_an_unknown_placement_is_refused() -> None:
    for placement in (_MaskPartial(offset_shape=torch.Size([4]), offset_dim=0), Partial("product")):
        x = DTensor.from_local(torch.ones(2), world(), [placement], run_check=False)
        with pytest.raises(ValueError, match="The norm of a gradient of this placement is not defined"):
            gradclip.norm([x], RULE)


def check_a_process_outside_of_the_mesh_is_told() -> None:
    mesh = DeviceMesh("cpu", [0])
    x = distribute_tensor(torch.tensor([3.0, 4.0]), mesh, [Shard(0)])
    if dist.get_rank() == 0:
        assert gradclip.norm([x], RULE) == 5.0
        return
    with pytest.raises(ValueError, match="This process does not belong to the group") as error:
        gradclip.norm([x], RULE)
    assert f"rank {dist.get_rank()}" in str(error.value)


def check_the_norm_is_the_natives() -> None:
    """A replicated DTensor for DTensors of one mesh, with no more collectives; else a plain tensor."""
    meshes = [(world(), [Shard(0)]), (world(), [Replicate()])]
    if dist.get_world_size() == 4:
        meshes += [(square(), [Shard(0), Shard(1)]), (square(), [Replicate(), Shard(0)]), (square()["tp"], [Shard(0)])]
    for mesh, places in meshes:
        grads = [distribute_tensor(randn(8, 4, seed=i), mesh, places) for i in range(3)]
        for given, call in ((grads, "get_total_norm"), (list(map(torch.nn.Parameter, grads)), "clip_grad_norm_")):
            found = []
            for module in (torch.nn.utils, gradclip):
                for p, grad in zip(given, grads, strict=True):
                    p.grad = grad.clone() if call == "clip_grad_norm_" else None
                with Traffic() as traffic:
                    got = getattr(module, call)(given, *[0.5] * (call == "clip_grad_norm_"))
                    whole = got.full_tensor()
                found.append((type(got), got.device_mesh, got.placements, got.dtype, got.requires_grad, len(traffic.sent)))
                close(whole, exact([randn(8, 4, seed=i) for i in range(3)], 2.0))
            (*native, most), (*ours, sent) = found
            assert ours == native
            # of parameters that are the same everywhere a process may lack a gradient: one collective tells
            assert sent <= max(most, int(call == "clip_grad_norm_"))
        for p, grad in zip(given, grads, strict=True):
            p.grad = grad.clone()
        gradclip.clip_grads_with_norm_(given, 0.5, gradclip.get_total_norm(grads))
        same([p.grad for p in given], [0.5 / exact([x.full_tensor() for x in grads], 2.0) * x.full_tensor() for x in grads], 64)
    mixed = [distribute_tensor(randn(4), world(), [Shard(0)]), randn(4)]
    assert type(gradclip.get_total_norm(mixed)) is torch.Tensor


def check_a_derivative_is_refused() -> None:
    x = distribute_tensor(randn(4, 3), world(), [Shard(0)]).requires_grad_()
    with pytest.raises(ValueError, match="A clip over several processes has no derivative"):
        gradclip.clip([x * 1], RULE)
    gradclip.clip_([x * 1], RULE)
    assert not gradclip.get_total_norm([x * 1]).requires_grad


def check_compiled() -> None:
    """torch's own operations on DTensors return the norm as a DTensor, on one mesh."""
    x = randn(4, 3)
    compiled = torch.compile(lambda grads: gradclip.clip(grads, RULE), backend="eager", fullgraph=True)
    result = compiled([distribute_tensor(x.clone(), world(), [Shard(0)])])
    close(result.norm.full_tensor(), exact([x], 2.0))
    same(result.grads, gradclip.clip([x], RULE).grads)


def check_limits_that_are_tensors() -> None:
    x = randn(4, 3)
    for limit in (torch.tensor(0.5), torch.tensor([0.5])):
        got = gradclip.clip([distribute_tensor(x, world(), [Shard(0)])], dialect.clip_grad_norm(limit))
        same(got.grads, gradclip.clip([x], RULE).grads)


def check_whole_tensors_beside_parts() -> None:
    """The native raises: "got mixed torch.Tensor and DTensor"."""
    whole = [randn(5, 3), randn(7, seed=1), randn(2, seed=2).bfloat16()]
    given = [distribute_tensor(whole[0], world(), [Shard(0)]), whole[1].clone(), whole[2].clone()]
    with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
        torch.nn.utils.get_total_norm(given[:2])
    with Traffic() as traffic:
        result = gradclip.clip_(given, RULE)
    assert traffic.sent == [16 + MARKS], "the norm of the shards, the norm of the replicas, and the marks"
    close(result.norm, exact(whole, 2.0))
    agree(result.norm)
    same(given, gradclip.clip(whole, RULE).grads)


def check_4_several_meshes_in_one_call() -> None:
    """The native raises: "All operands in aten.stack.default must have the same mesh"."""
    line, grid, whole = world(), square(), [randn(6, 4, seed=i) for i in range(7)]
    copies = [x.clone() for x in whole]
    given = [
        distribute_tensor(copies[0], line, [Shard(0)]),
        distribute_tensor(copies[1], grid, [Shard(0), Shard(1)]),
        distribute_tensor(copies[2], grid, [Replicate(), Shard(0)]),
        distribute_tensor(copies[3], grid, [Shard(1), Replicate()]),
        distribute_tensor(copies[4], grid["tp"], [Shard(0)]),
        distribute_tensor(copies[5], grid["dp"], [Replicate()]),
        copies[6],
    ]
    with pytest.raises(RuntimeError, match="same mesh"):
        torch.nn.utils.get_total_norm(given[:2])
    with Traffic() as traffic:
        result = gradclip.clip_(given, RULE)
    assert traffic.sent == [16 + MARKS] * 2, "one over all processes, for the line and the grid; one over the pair of tp"
    close(result.norm, exact(whole, 2.0))
    agree(result.norm)
    same(given, gradclip.clip(whole, RULE).grads)
    for order in (0.0, 1.0, 3.0, float("inf"), -float("inf")):
        rule = dialect.clip_grad_norm(1.0, order)
        close(
            gradclip.norm(given, rule), gradclip.norm([g.full_tensor() if isinstance(g, DTensor) else g for g in given], rule)
        )


def check_4_two_dimensions() -> None:
    grid, x = square(), randn(7, 5)
    places = (Shard(0), Shard(1), Replicate())
    for first in places:
        for second in places:
            given = distribute_tensor(x, grid, [first, second])
            with Traffic() as traffic:
                result = gradclip.clip([given], RULE)
            close(result.norm, exact([x], 2.0))
            assert len(traffic.sent) == int((first, second) != (Replicate(), Replicate()))
            same(result.grads, gradclip.clip([x], RULE).grads)
    summed = DTensor.from_local(randn(3, 2), grid, [Shard(0), Partial()], run_check=False)
    close(gradclip.norm([summed], RULE), exact([2 * randn(3, 2)] * 2, 2.0))


def check_4_a_mesh_that_is_not_all_processes() -> None:
    """No group covers several of its dimensions: each dimension needs a collective."""
    grid, x = square(), randn(8, 8)
    given = [distribute_tensor(x, grid, [Shard(0), Shard(1)]), distribute_tensor(x, grid, [Replicate(), Shard(1)])]
    ask = dist.get_world_size
    with (
        mock.patch.object(dtensor.dist, "get_world_size", lambda group=None: ask(group) if group else 8),
        Traffic() as traffic,
    ):
        got = gradclip.norm(given, RULE)
    assert traffic.sent == [16 + MARKS] * 2
    close(got, exact([x, x], 2.0))
    agree(got)


def check_4_pairs_that_hold_different_gradients() -> None:
    """Two meshes of two: each process gets its own pair's norm; ``reduce=`` over the other dimension gives the norm of all."""
    grid, rank = square(), dist.get_rank()
    x = randn(4, 2, seed=rank // 2)
    given = [distribute_tensor(x, grid["tp"], [Shard(0)])]
    close(gradclip.norm(given, RULE), exact([x], 2.0))
    got = gradclip.norm(given, RULE, reduce=grid["dp"])
    close(got, exact([randn(4, 2, seed=0), randn(4, 2, seed=1)], 2.0))
    agree(got)
    with pytest.raises(ValueError, match="already share the norm") as error:
        gradclip.norm(given, RULE, reduce=grid["tp"])
    assert "gradients on ranks" in str(error.value)


def check_4_equal_meshes_are_one() -> None:
    """Equal meshes have other groups. DTensor's caches mix such meshes, and each process may miss other gradients."""
    one, two = square(), square()
    assert one == two
    assert one.get_group("tp") is not two.get_group("tp")
    for dimension in ("dp", "tp"):
        other = "tp" if dimension == "dp" else "dp"
        for silent in range(4):
            params = [torch.nn.Parameter(distribute_tensor(torch.zeros(8, 2), m[dimension], [Shard(0)])) for m in (one, two)]
            for i, (p, mesh) in enumerate(zip(params, (two, one), strict=True)):
                grad = distribute_tensor(randn(8, 2, seed=i), mesh[dimension], [Shard(0)])
                p.grad = None if dist.get_rank() == silent and i == 0 else grad
            whole = [randn(8, 2, seed=i) for i in range(2)]
            if one.get_local_rank(other) == (silent // 2 if other == "dp" else silent % 2):
                mine = silent % 2 if dimension == "tp" else silent // 2
                whole[0][4 * mine : 4 * mine + 4] = 0
            close(gradclip.clip_grad_norm_(params, 1.0), exact(whole, 2.0))


def check_4_sums_on_equal_meshes() -> None:
    one, two = square()["tp"], square()["tp"]
    meshes = (one, two) if dist.get_rank() % 2 else (two, one)
    addends = [DTensor.from_local(randn(3), mesh, [Partial()], run_check=False) for mesh in meshes]
    close(gradclip.norm(addends, RULE), exact([2 * randn(3)] * 2, 2.0))
