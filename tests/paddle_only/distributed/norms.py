"""The norm of sharded gradients equals that of the full ones, and each shard is scaled by it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import pytest
from paddle_only.distributed.common import (
    Replicate,
    Shard,
    addends,
    agree,
    as_on_a_device,
    close,
    exact,
    local,
    placed,
    random,
    square,
    traffic,
    world,
)

import gradclip
from gradclip.core.errors import ArgumentError
from gradclip.dialects import paddle as paddle_dialect
from gradclip.dialects import torch as dialect

SHAPES = [(8, 3), (16,), (4, 5), (4,)]


def wholes(dtype: str = "float32") -> list[Any]:
    return [random(shape, seed, dtype) for seed, shape in enumerate(SHAPES)]


def split(tensors: list[Any]) -> list[Any]:
    """Return the gradients on a mesh: the first two are split by rows, the others are replicated."""
    mesh = world()
    return [placed(tensors[0], mesh, Shard(0)), placed(tensors[1], mesh, Shard(0))] + [
        placed(x, mesh, Replicate()) for x in tensors[2:]
    ]


def check_orders() -> None:
    for order in (1.0, 2.0, 3.0, math.inf, -math.inf):
        rule = dialect.clip_grad_norm(1.0, norm_type=order)
        got = gradclip.norm(split(wholes()), rule)
        close(got, exact(wholes(), order))
        close(got, gradclip.norm(wholes(), rule))
        agree(float(got))


def check_dtypes() -> None:
    for dtype in ("bfloat16", "float16", "float32", "float64"):
        x = wholes(dtype)
        got = gradclip.norm(split(x), dialect.clip_grad_norm(1.0))
        close(got, exact(x))
        close(got, gradclip.norm(x, dialect.clip_grad_norm(1.0)))


def check_one_collective_however_many_gradients() -> None:
    rule = dialect.clip_grad_norm(1.0)
    for count in (1, 20):
        gradients = split(wholes())[:1] * count
        gradients = [g.clone() for g in gradients]
        with traffic() as sent:
            gradclip.clip_(gradients, rule)
        assert sent == [16 + 24]


def check_with_tensors_as_on_a_device() -> None:
    with as_on_a_device():
        got = gradclip.clip_(split(wholes()), dialect.clip_grad_norm(1.0))
        close(got.norm, exact(wholes()))
        agree(float(got.norm))


def clips_as_whole(make: Callable[[], list[Any]], tensors: list[Any], rule: Any, dtype: str = "float32") -> None:
    """Clip in place and into new tensors; each shard equals that of the clipped full gradient."""
    want = gradclip.clip(tensors, rule).grads
    given = make()
    fresh = gradclip.clip(given, rule).grads
    for g, before in zip(given, make(), strict=True):
        assert np.array_equal(local(g), local(before)), "clip writes nothing"
    gradclip.clip_(given, rule)
    for g, f, like, w in zip(given, fresh, make(), want, strict=True):
        assert f.placements == like.placements
        assert f.shape == like.shape
        part = local(placed(w.clone(), like.process_mesh, *like.placements)) if not like.placements[0].is_partial() else None
        for x in (g, f):
            if part is None:
                close(dist.unshard_dtensor(x).astype("float64").numpy(), w.astype("float64").numpy(), dtype)
            else:
                close(local(x), part, dtype)


def check_each_part_is_scaled() -> None:
    rules = [
        dialect.clip_grad_norm(0.5),
        paddle_dialect.clip_grad_by_global_norm(0.5),
        paddle_dialect.clip_grad_by_norm(0.5),
        paddle_dialect.clip_grad_by_value(0.25),
    ]
    for dtype in ("float32", "bfloat16"):
        for rule in rules:
            clips_as_whole(lambda d=dtype: split(wholes(d)), wholes(dtype), rule, dtype)


def check_an_empty_part() -> None:
    """With one row fewer than processes, Paddle 3.3.1 makes one part empty, and the others have one row each."""
    n = dist.get_world_size()
    x = random((n - 1, 3), 5)
    rule = dialect.clip_grad_norm(0.5)
    last = dist.get_rank() == n - 1
    assert (local(placed(x, world(), Shard(0))).size == 0) == last
    clips_as_whole(lambda: [placed(x, world(), Shard(0)), *split(wholes())], [x, *wholes()], rule)
    uneven = random((2 * n - 1, 3), 6)
    clips_as_whole(lambda: [placed(uneven, world(), Shard(0))], [uneven], rule)
    for order in (math.inf, -math.inf, 2.0):
        got = gradclip.norm([placed(x, world(), Shard(0))], dialect.clip_grad_norm(1.0, norm_type=order))
        close(got, exact([x], order))


def check_sums_over_processes() -> None:
    """The gradients of replicated parameters: Paddle sums them only when the optimizer needs them."""
    n = dist.get_world_size()
    x = [random((4, 3), 6), random((5,), 7)]
    whole = [v * float(n * (n + 1) / 2) for v in x]
    rule = dialect.clip_grad_norm(0.5)
    with traffic() as sent:
        got = gradclip.norm([addends(v, world()) for v in x], rule)
    close(got, exact(whole))
    agree(float(got))
    assert sent == [17 * 4, 16 + 24], "one for all sums, one for the norm"
    clips_as_whole(lambda: [addends(v, world()) for v in x], whole, rule)
    with pytest.raises(ArgumentError, match="summed over processes cannot be clipped by value"):
        gradclip.clip_([addends(x[0], world())], paddle_dialect.clip_grad_by_value(1.0))


def check_parameters() -> None:
    """``clip_grad_norm_`` on parameters, also on one without a gradient and on one listed twice."""
    layer, plain = paddle.nn.Linear(4, 8), paddle.nn.Linear(4, 8)
    for of in (layer, plain):
        of.weight.set_value(random((4, 8), 1))
        of.bias.set_value(random((8,), 2))
    layer.weight = placed(layer.weight, world(), Shard(1))
    layer.bias = placed(layer.bias, world(), Shard(0))
    unused = placed(paddle.create_parameter([8], "float32"), world(), Shard(0))
    x = random((2, 4), 4)
    layer(placed(x, world(), Replicate())).square().sum().backward()
    plain(x).square().sum().backward()
    wanted = [p.grad for p in plain.parameters()]
    norm = gradclip.clip_grad_norm_([*layer.parameters(), layer.weight, unused], 0.5)
    close(float(norm), exact(wanted), at_most=64)  # the gradients themselves differ: other shapes
    agree(float(norm))
    close(gradclip.norm(layer.parameters(), dialect.clip_grad_norm(1.0)), 0.5, at_most=64)


def check_4_meshes_of_two_dimensions() -> None:
    x = [random((4, 8), 1), random((4, 4), 2), random((6,), 3)]
    kinds = [(Shard(0), Shard(1)), (Replicate(), Shard(0)), (Replicate(), Replicate())]

    def make() -> list[Any]:
        return [placed(v, square(), *kind) for v, kind in zip(x, kinds, strict=True)]

    with traffic() as sent:
        got = gradclip.norm(make(), dialect.clip_grad_norm(1.0))
    assert sent == [16 + 24]
    close(got, exact(x))
    clips_as_whole(make, x, dialect.clip_grad_norm(0.5))


def check_4_several_meshes_and_a_whole_tensor() -> None:
    """Half of the layers are on two processes, half on the others, as in Paddle's pipelines."""
    stages = [dist.ProcessMesh([0, 1], dim_names=["x"]), dist.ProcessMesh([2, 3], dim_names=["x"])]
    x = [random((4, 3), 1), random((2, 5), 2), random((7,), 3)]
    rule = dialect.clip_grad_norm(0.5)
    given = [placed(x[0], stages[0], Shard(0)), placed(x[1], stages[1], Shard(0)), x[2].clone()]
    before = [local(g) for g in given]
    with traffic() as sent:
        got = gradclip.clip_(given, rule)
    assert sent == [16 + 24]
    close(got.norm, exact(x))
    agree(float(got.norm))
    mine = dist.get_rank() // 2
    coefficient = 0.5 / (exact(x) + 1e-6)
    close(local(given[mine]), before[mine] * coefficient)
    close(local(given[2]), before[2] * coefficient)
    close(gradclip.norm(given, paddle_dialect.clip_grad_by_norm(1.0))[2], exact([x[2]]) * coefficient)
