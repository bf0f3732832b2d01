"""The norm for any order, dtype, size and split: it equals the full gradients' norm, and is the same number everywhere."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from oracle import ulps
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch_only.distributed.common import (
    MARKS,
    Traffic,
    agree,
    as_on_a_device,
    close,
    exact,
    exact_square,
    parted,
    random_sizes,
    same,
    world,
)

import gradclip
from gradclip.backends.torch.distributed import TorchDistributed
from gradclip.dialects import keras, optax, paddle, tensorflow
from gradclip.dialects import torch as dialect

ORDERS = (1.0, 2.0, 3.0, math.inf, 0.0, -math.inf, -1.0)
#: squares at the second scale overflow in the dtype, those at the third underflow
SCALES = {
    "float32": (1.0, 1e25, 1e-25),
    "bfloat16": (1.0, 1e30, 1e-30),
    "float16": (1.0, 300.0),
    "float64": (1.0, 1e250, 1e-250),
}


def tensors(dtype: str, scale: float = 1.0, seed: int = 0) -> list[torch.Tensor]:
    """Return full gradients, the same on every process: one has fewer rows than processes, one begins with zeros."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(5, 3), (7,), (1, 4), (), (2, 3), (6,), (3,)]
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) * scale for shape in shapes]
    made[5][:-1] = 0
    made[6][:] = 0
    return [x.to(getattr(torch, dtype)) for x in made]


def in_parts(whole: list[torch.Tensor]) -> list[Any]:
    mesh = world()
    places: list[Any] = [Shard(0), Shard(0), Shard(1), Replicate(), None, Shard(0), Shard(0)]
    copies = [x.clone() for x in whole]  # distribute_tensor shares its argument's memory if it can
    return [x if place is None else distribute_tensor(x, mesh, [place]) for x, place in zip(copies, places, strict=True)]


def check_every_order_dtype_and_size() -> None:
    for dtype, scales in SCALES.items():
        unit = "float64" if dtype == "float64" else "float32"
        for scale in scales:
            whole = tensors(dtype, scale)
            given = in_parts(whole)
            for order in ORDERS:
                rule = dialect.clip_grad_norm(1.0, order)
                got = gradclip.norm(given, rule)
                close(got, gradclip.norm(whole, rule), unit)
                close(got, exact(whole, order), unit)
                agree(got)


def check_a_norm_on_a_device_is_as_right() -> None:
    whole = tensors("float32")
    want = gradclip.clip(whole, dialect.clip_grad_norm(0.5)).grads
    with as_on_a_device():
        for order in ORDERS:
            for dtype, scale in (("float32", 1e3), ("bfloat16", 1.0), ("float64", 1e-50)):
                parts = tensors(dtype, scale)
                got = gradclip.norm(in_parts(parts), dialect.clip_grad_norm(1.0, order))
                assert isinstance(got, torch.Tensor)
                assert got.dim() == 0
                close(got, exact(parts, order), "float32", 16)  # the host does not sum pairwise
        for got, x in zip(gradclip.norm(in_parts(whole), tensorflow.clip_by_norm(1.0)), whole, strict=True):
            close(got, exact([x], 2.0))
        given = in_parts(whole)
        gradclip.clip_(given, dialect.clip_grad_norm(0.5))
        same(given, want)


def check_any_split() -> None:
    mesh, generator = world(), torch.Generator().manual_seed(1)
    for case in range(30):
        dtype = (torch.float32, torch.bfloat16, torch.float16)[case % 3]
        whole = [torch.randn(n, 3, generator=generator).to(dtype) for n in (1, 40, 700)]
        split = [parted(x, mesh, random_sizes(len(x), mesh.size(), generator)) for x in whole]
        got = gradclip.norm(split, dialect.clip_grad_norm(1.0))
        close(got, exact_square(whole))
        close(got, gradclip.norm(whole, dialect.clip_grad_norm(1.0)))
        agree(got)


def check_many_equal_elements() -> None:
    """A running sum in float32 would be off by percents."""
    for dtype in (torch.float32, torch.bfloat16):
        whole = torch.full((2_000_003,), 0.1, dtype=dtype)
        got = gradclip.norm([distribute_tensor(whole, world(), [Shard(0)])], dialect.clip_grad_norm(1.0))
        close(got, math.sqrt(len(whole)) * float(whole[0]))


def check_the_drop_ins() -> None:
    for limit in (0.5, 1e9, 0.0, math.inf):
        whole = tensors("float32")
        native = [torch.nn.Parameter(torch.zeros_like(x)) for x in whole]
        ours = [torch.nn.Parameter(x * 0) for x in in_parts(whole)]
        steps = [torch.nn.Parameter(x * 0) for x in in_parts(whole)]
        for p, q, s, x, part, again in zip(native, ours, steps, whole, in_parts(whole), in_parts(whole), strict=True):
            p.grad, q.grad, s.grad = x.clone(), part, again
        want = torch.nn.utils.clip_grad_norm_(native, limit)
        got = gradclip.clip_grad_norm_(ours, limit)
        assert type(got) is torch.Tensor
        assert (got.dtype, got.dim()) == (torch.float32, 0)
        close(got, want)
        two = gradclip.get_total_norm([p.grad for p in steps])
        assert type(two) is torch.Tensor
        assert two == got
        gradclip.clip_grads_with_norm_(steps, limit, two)
        same([p.grad for p in ours], [p.grad for p in native])
        same([p.grad for p in steps], [p.grad for p in native])
        agree(got.item())


def check_a_norm_that_the_native_measured() -> None:
    """The native's norm is a DTensor; for an infinite order each process has a different local value."""
    whole = [x for x in tensors("float32") if x.dim()]
    params = [torch.nn.Parameter(distribute_tensor(x, world(), [Shard(0)])) for x in whole]
    for p in params:
        p.grad = p.detach().clone()
    n = torch.nn.utils.get_total_norm([p.grad for p in params])
    assert isinstance(n, DTensor)
    gradclip.clip_grads_with_norm_(params, 0.5, n)
    want = gradclip.clip(whole, dialect.clip_grad_norm(0.5)).grads
    same([p.grad for p in params], want)
    largest = DTensor.from_local(torch.tensor(float(dist.get_rank())), world(), [Partial("max")], run_check=False)
    gradclip.clip_grads_with_norm_(params, 0.5, largest)
    last = dist.get_world_size() - 1
    same([p.grad for p in params], gradclip.scale_by_norm(want, dialect.clip_grad_norm(0.5), float(last)).grads)


def check_the_norm_of_parameters_themselves() -> None:
    params = [torch.nn.Parameter(distribute_tensor(x, world(), [Shard(0)])) for x in tensors("float32") if x.dim()]
    got = gradclip.get_total_norm(params)
    close(got, exact([x for x in tensors("float32") if x.dim()], 2.0))
    assert not got.requires_grad


RULES = [
    dialect.clip_grad_norm(0.5, 3.0),
    dialect.clip_grad_value(0.5),
    tensorflow.clip_by_norm(0.5),
    tensorflow.clip_by_global_norm(0.5),
    tensorflow.clip_by_value(-0.25, 0.5),
    paddle.clip_grad_by_norm(0.5),
    paddle.clip_grad_by_global_norm(0.5),
    optax.clip_by_block_rms(0.5),
    optax.clip_by_global_norm(0.5),
    keras.clipnorm(0.5),
    keras.global_clipnorm(0.5),
]


def check_the_rules_of_every_dialect() -> None:
    for rule in RULES:
        for dtype in ("float32", "bfloat16", "float64"):
            whole = tensors(dtype)
            want, given = gradclip.clip(whole, rule), in_parts(whole)
            got = gradclip.clip(given, rule)
            same(given, whole, 0)  # unchanged
            for result, leaf in zip(got.grads, given, strict=True):
                assert type(result) is type(leaf)
                if isinstance(leaf, DTensor):
                    assert (result.device_mesh, result.placements) == (leaf.device_mesh, leaf.placements)
                    assert (result.shape, result.stride()) == (leaf.shape, leaf.stride())
            same(got.grads, want.grads)
            agree(got.norm)
            written = gradclip.clip_(given, rule)
            assert all(x is y for x, y in zip(written.grads, given, strict=True))
            same(given, want.grads)
            for n, m in zip(*(x if isinstance(x, list) else [x] for x in (got.norm, want.norm)), strict=True):
                assert (n is None) == (m is None)
                assert n is None or ulps(n, m, "float32") <= 4


def check_what_is_not_clipped_keeps_every_bit() -> None:
    whole = tensors("float32")
    given = in_parts(whole)
    result = gradclip.clip(given, dialect.clip_grad_norm(1e9))
    same(result.grads, whole, 0)
    assert result.coefficient == 1.0
    for new, old in zip(result.grads, given, strict=True):
        assert new is not old
    gradclip.clip_(given, dialect.clip_grad_norm(1e9))
    same(given, whole, 0)


def check_a_gradient_listed_twice_counts_once() -> None:
    x = distribute_tensor(torch.tensor([3.0, 4.0, 0.0, 0.0]), world(), [Shard(0)])
    result = gradclip.clip_([x, x], dialect.clip_grad_norm(1.0))
    assert result.norm == 5.0
    close(x.full_tensor()[1], 0.8, at_most=16)  # for the epsilon


def check_one_collective_however_many_gradients() -> None:
    for count in (1, 3, 100):
        given = [distribute_tensor(torch.randn(5, 2), world(), [Shard(i % 2)]) for i in range(count)]
        for order in (1.0, 2.0, 3.0, math.inf, -math.inf):
            with Traffic() as traffic:
                gradclip.clip_(given, dialect.clip_grad_norm(0.1, order))
            assert traffic.sent == [16 + MARKS], "the norm of the shards, and the norm of plain tensors beside them"
        with Traffic() as traffic:
            gradclip.clip_(given, tensorflow.clip_by_norm(0.1))
        assert traffic.sent == [8 * count + MARKS]
        with Traffic() as traffic:
            gradclip.clip_(given, dialect.clip_grad_value(0.1))
            gradclip.scale_by_norm_(given, dialect.clip_grad_norm(0.1), 1.0)
        assert traffic.sent == []


def check_the_native_where_it_works() -> None:
    """It too uses one collective, with a float32 for each gradient."""
    given = [
        torch.nn.Parameter(distribute_tensor(torch.randn(dist.get_world_size(), 2), world(), [Shard(0)])) for _ in range(9)
    ]
    for p in given:
        p.grad = p.detach().clone()
    with Traffic() as traffic:
        torch.nn.utils.clip_grad_norm_(given, 0.1)
    assert traffic.sent == [4 * 9]


def check_plain_gradients_cost_nothing_more() -> None:
    given = [torch.randn(3), torch.randn(4)]
    looked: list[str] = []
    asked = TorchDistributed.parts
    TorchDistributed.parts = lambda self, leaves, params: looked.append("asked")
    try:
        with Traffic() as traffic:
            gradclip.clip_(given, dialect.clip_grad_norm(0.1))
    finally:
        TorchDistributed.parts = asked
    assert traffic.sent == []
    assert looked == []


def check_the_dtype_without_gradients_here() -> None:
    """A process without gradients has the norm of the others, to the bit."""
    for order in (2.0, 3.0, -math.inf):
        parameter = torch.nn.Parameter(distribute_tensor(torch.ones(8, 3, dtype=torch.float64), world(), [Shard(0)]))
        if dist.get_rank() > 0:
            parameter.grad = distribute_tensor(torch.full((8, 3), 0.1, dtype=torch.float64), world(), [Shard(0)])
        else:
            distribute_tensor(torch.full((8, 3), 0.1, dtype=torch.float64), world(), [Shard(0)])  # takes part in the scatter
        norm = gradclip.clip_([parameter], dialect.clip_grad_norm(0.01, order)).norm
        assert norm.dtype == torch.float64, norm
        agree(norm)
        narrow = torch.nn.Parameter(distribute_tensor(torch.ones(4), world(), [Shard(0)]))  # each process has its gradient
        narrow.grad = distribute_tensor(torch.full((4,), 0.1), world(), [Shard(0)])
        norm = gradclip.clip_grad_norm_([parameter, narrow], 0.01, order)
        assert norm.dtype == torch.float64, norm
        agree(norm)
