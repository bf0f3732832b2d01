"""Models under torch's own engines match the same model, trained in one process."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch_only.distributed.common import MARKS, Traffic, agree, close, exact, square, world

import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects import torch as dialect


class Block(nn.Module):
    """A normalisation, and layers whose number of rows differs from the number of processes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net()


def batches(count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(4, 4, 8, generator=generator) for _ in range(count)]


def train(model: nn.Module, data: list[torch.Tensor], max_norm: float = 0.5) -> list[float]:
    """Train, and return the norms of the steps."""
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for x in data:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        n = gradclip.clip_grad_norm_(model.parameters(), max_norm)
        meshes = {getattr(p, "device_mesh", None) for p in model.parameters()}
        assert type(n) is (DTensor if len(meshes) == 1 and None not in meshes else torch.Tensor)
        agree(n.item())
        found.append(n.item())
        optimizer.step()
    return found


def alike(model: nn.Module, found: list[float], whole: nn.Module, wanted: list[float], tolerance: float = 2e-6) -> None:
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=0)
    params = dict(model.named_parameters())
    for name, q in whole.named_parameters():
        p = params[name.removeprefix("module.")] if name in params else params[f"module.{name}"]
        p = p.full_tensor() if isinstance(p, DTensor) else p
        torch.testing.assert_close(p, q, rtol=0, atol=tolerance)


def check_fsdp() -> None:
    model, whole = net(), net()
    for block in model.blocks:
        fully_shard(block, mesh=world())
    fully_shard(model, mesh=world())
    alike(model, train(model, batches()), whole, train(whole, batches()))
    grads = [p.grad for p in model.parameters()]
    assert any(g.to_local().numel() == 0 for g in grads) or dist.get_world_size() < 4 or dist.get_rank() < 3
    close(gradclip.norm(grads, dialect.clip_grad_norm(1.0)), exact([g.full_tensor() for g in grads], 2.0))


def check_fsdp_in_bfloat16() -> None:
    """FSDP has summed the gradients; their norm equals the full gradients' norm."""
    model = net().bfloat16()
    fully_shard(model, mesh=world(), mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
    model(batches()[0].bfloat16()).square().mean().backward()
    grads = [p.grad for p in model.parameters()]
    assert {g.dtype for g in grads} == {torch.bfloat16}
    whole = [g.full_tensor() for g in grads]
    got = gradclip.norm(grads, dialect.clip_grad_norm(1.0))
    close(got, exact(whole, 2.0))
    close(got, gradclip.norm(whole, dialect.clip_grad_norm(1.0)))
    agree(got)


def check_fsdp_with_the_optimizers_hook() -> None:
    model, whole = net(), net()
    fully_shard(model, mesh=world())
    for trained in (model, whole):
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        optimizer.register_step_pre_hook(step_pre_hook(dialect.clip_grad_norm(0.5)))
        for x in batches():
            optimizer.zero_grad()
            trained(x).square().mean().backward()
            optimizer.step()
    alike(model, [], whole, [])


def check_ddp_needs_nothing() -> None:
    """DDP averages the gradients before the clip: each process's own norm is the norm of all."""
    whole = net()
    model = nn.parallel.DistributedDataParallel(net())
    mine = [x.chunk(dist.get_world_size())[dist.get_rank()] for x in batches()]
    alike(model, train(model, mine), whole, train(whole, batches()), 2e-5)
    model(mine[0]).square().mean().backward()
    with Traffic() as traffic:
        gradclip.clip_grad_norm_(model.parameters(), 0.1)
    assert traffic.sent == []


TENSOR_PARALLEL = {
    "norm": SequenceParallel(),
    "a": ColwiseParallel(input_layouts=Shard(1)),
    "b": RowwiseParallel(output_layouts=Shard(1)),
}


def check_tensor_parallel() -> None:
    """It uses sequence parallelism, in which the gradient of the normalisation's weight is a partial sum."""
    mesh, rank = world(), dist.get_rank()
    torch.manual_seed(0)
    model = Block()
    torch.manual_seed(0)
    whole = Block()
    parallelize_module(model, mesh, TENSOR_PARALLEL)
    x = batches()[0]
    model(x.chunk(mesh.size(), dim=1)[rank]).square().sum().backward()
    whole(x).square().sum().backward()
    assert model.norm.weight.grad.placements == (Partial(),)
    grads = [q.grad.clone() for q in whole.parameters()]
    with Traffic() as traffic:
        got = gradclip.clip_grad_norm_(model.parameters(), 0.5)
    assert len(traffic.sent) == 2, "one for both sums, one for the norm"
    torch.testing.assert_close(got.full_tensor(), torch.nn.utils.get_total_norm(grads), rtol=1e-5, atol=0)
    agree(got.item())
    want = gradclip.clip(grads, dialect.clip_grad_norm(0.5)).grads
    for p, g in zip(model.parameters(), want, strict=True):
        torch.testing.assert_close(p.grad.full_tensor(), g, rtol=1e-4, atol=1e-6)
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def as_upstream_tests_it(model: nn.Module, whole: nn.Module, order: float) -> None:
    """The norm is that of the whole model, ``full_tensor()`` works, and there are no more collectives than natively."""
    for x in batches(2):
        for trained in (model, whole):
            trained.zero_grad()
            trained(x).square().sum().backward()
        want = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.5, order)
        grads = [p.grad.clone() for p in model.parameters()]
        with CommDebugMode() as native:
            theirs = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5, order, foreach=True)
        for p, g in zip(model.parameters(), grads, strict=True):
            p.grad = g
        with CommDebugMode() as own:
            got = gradclip.clip_grad_norm_(model.parameters(), 0.5, order)
        assert got.placements == (Replicate(),) * len(theirs.placements)
        assert 0 < own.get_total_counts() <= native.get_total_counts() == len(theirs.placements)
        with CommDebugMode() as free:
            torch.testing.assert_close(got.full_tensor(), want, rtol=1e-5, atol=0)
        assert not free.get_total_counts()
        torch.testing.assert_close(got.full_tensor(), theirs.full_tensor(), rtol=1e-6, atol=0)
        for p, q in zip(model.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(p.grad.full_tensor(), q.grad, rtol=1e-4, atol=1e-6)


def pair() -> tuple[nn.Sequential, nn.Sequential]:
    """Two equal models without a bias shorter than the number of processes: torch has no largest value of an empty shard."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8)))
    return models[0], models[1]


def check_fsdp_as_upstream_tests_it() -> None:
    """The shape of PyTorch's ``test_fully_shard_clip_grad_norm_``, on a mesh of one dimension."""
    for order in (2, 1, math.inf):
        model, whole = pair()
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=world())
        fully_shard(model, mesh=world())
        as_upstream_tests_it(model, whole, order)


def check_4_fsdp_over_tensor_parallel_as_upstream_tests_it() -> None:
    """The same on a mesh of two dimensions; the shards are strided."""
    for order in (2, 1, 3, math.inf):
        model, whole = pair()
        parallelize_module(model, square()["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=square()["dp"])
        as_upstream_tests_it(model, whole, order)


def check_4_fsdp_and_tensor_parallel() -> None:
    grid, whole = square(), net()
    model = net()
    for block in model.blocks:
        parallelize_module(block, grid["tp"], {"a": ColwiseParallel(), "b": RowwiseParallel()})
        fully_shard(block, mesh=grid["dp"])
    fully_shard(model, mesh=grid["dp"])
    mixed = {p.device_mesh for p in model.parameters()}
    assert len(mixed) == 2, "the head is on dp alone"
    alike(model, train(model, batches()), whole, train(whole, batches()), 1e-5)
    with Traffic() as traffic:
        gradclip.clip_grad_norm_(model.parameters(), 0.5)
    assert traffic.sent == [16 + MARKS] * 2


def check_4_hybrid_sharding() -> None:
    """Replicated shards: a norm needs the processes of one replica only."""
    model, whole = net(), net()
    fully_shard(model, mesh=square())
    alike(model, train(model, batches()), whole, train(whole, batches()))
    with Traffic() as traffic:
        gradclip.clip_grad_norm_(model.parameters(), 0.5)
    assert traffic.sent == [16 + MARKS]
