"""Norms along axes, also relative to the parameters': of slices on one process, and of sharded slices."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch_only.distributed.common import Traffic, as_on_a_device, parted, random_sizes, same, square, world

import gradclip
from gradclip import Rule
from gradclip.dialects import optax, tensorflow
from gradclip.dialects import torch as dialect

RULES = [
    tensorflow.clip_by_norm(0.5, axes=[0]),
    tensorflow.clip_by_norm(0.5, axes=[-1]),
    tensorflow.clip_by_norm(0.5, axes=[1, 0]),
    tensorflow.clip_by_norm(0.5, axes=[]),
    optax.adaptive_grad_clip(0.1),
    optax.adaptive_grad_clip(0.1, axis=1),
    dataclasses.replace(tensorflow.clip_by_norm(0.5, axes=[0]), order=math.inf),
    dataclasses.replace(tensorflow.clip_by_norm(0.5, axes=[0]), order=-1.0),
    dataclasses.replace(tensorflow.clip_by_norm(0.5, axes=[0]), order=0.0),
]


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check_any_split() -> None:
    """Uneven shards, also empty ones, along each dimension: the results equal the full tensors', parameters included.

    Each rule with each dtype along one of the dimensions, by turns.
    """
    mesh, generator = world(), torch.Generator().manual_seed(2)
    for case, dtype in enumerate([torch.float32, torch.bfloat16, torch.float16, torch.float64] * 2):
        dim = case // 4
        whole = [randn(*shape, seed=i, dtype=dtype) for i, shape in enumerate([(5, 3), (1, 4), (2, 6), (40, 7), (3, 2, 3, 3)])]
        sizes = [random_sizes(x.shape[dim], mesh.size(), generator) for x in whole]
        params = [x.flip(0) * 0.3 for x in whole]
        for rule in RULES[(case + dim) % 2 :: 2]:
            given, beside = ([parted(x, mesh, n, dim) for x, n in zip(xs, sizes, strict=True)] for xs in (whole, params))
            want = gradclip.clip(whole, rule, params=params).grads
            want = [x.split(n, dim)[mesh.get_local_rank()] for x, n in zip(want, sizes, strict=True)]
            same([x.to_local() for x in gradclip.clip(given, rule, params=beside).grads], want)
            result = gradclip.clip_(given, rule, params=beside)
            same([x.to_local() for x in given], want)
            for n, x in zip(result.norm, given, strict=True):
                assert n.dim() == x.dim()
                assert all(length in (1, here) for length, here in zip(n.shape, x.to_local().shape, strict=True))


def check_no_slices() -> None:
    """A sharded gradient without slices: alone, and beside a gradient that has some."""
    empty, other = torch.zeros(0, 4), randn(4, 4)
    for axis in (-1, 0):
        rule = tensorflow.clip_by_norm(0.5, axes=[axis])
        for whole in ([empty], [empty, other]):
            given = [distribute_tensor(x, world(), [Shard(1)]) for x in whole]
            got, want = gradclip.clip(given, rule), gradclip.clip(whole, rule)
            same(got.grads, want.grads)
            if axis == -1:
                for n, w in zip(got.norm, want.norm, strict=True):
                    assert n.shape == w.shape


def check_sizes_whose_squares_overflow() -> None:
    for scale in (1e25, 1e-25):
        whole = randn(8, 3) * scale
        rule = tensorflow.clip_by_norm(0.5 * scale, axes=[0])
        got = gradclip.clip([distribute_tensor(whole, world(), [Shard(0)])], rule)
        same(got.grads, gradclip.clip([whole], rule).grads)


def check_on_a_device() -> None:
    whole = [randn(5, 3), randn(7, 2, seed=1)]
    with as_on_a_device():
        for rule in RULES[:6]:
            given = [distribute_tensor(x, world(), [Shard(0)]) for x in whole]
            same(gradclip.clip(given, rule, params=given).grads, gradclip.clip(whole, rule, params=whole).grads)


def check_vectors_and_whole_tensors_beside() -> None:
    """optax's unit of a vector is all of it; a process does not ask others about its full tensors."""
    whole, rule = [randn(9), randn(4, 3, seed=1), randn(1)[0], randn(1, 5, seed=2)], optax.adaptive_grad_clip(0.1)
    places: list[Any] = [Shard(0), None, None, Shard(1)]
    given = [x if p is None else distribute_tensor(x, world(), [p]) for x, p in zip(whole, places, strict=True)]
    same(gradclip.clip(given, rule, params=given).grads, gradclip.clip(whole, rule, params=whole).grads)


def check_parameters_that_hold_their_gradients() -> None:
    """A process may lack a gradient: for the others' slices it counts as zeros."""
    whole, mesh, rule = [randn(8, 3), randn(8, 2, seed=1)], world(), optax.adaptive_grad_clip(0.1)
    for silent in (None, 0):
        parameters = [torch.nn.Parameter(distribute_tensor(x * 0.1, mesh, [Shard(0)])) for x in whole]
        expected = [x.clone() for x in whole]
        for p, x, e in zip(parameters, whole, expected, strict=True):
            if dist.get_rank() != silent:
                p.grad = distribute_tensor(x, mesh, [Shard(0)], src_data_rank=None)
            if silent is not None:
                e[: 8 // mesh.size()] = 0
        gradclip.clip_(parameters, rule)
        want = gradclip.clip(expected, rule, params=[x * 0.1 for x in whole]).grads
        if dist.get_rank() != silent:
            here = slice(dist.get_rank() * 8 // mesh.size(), (dist.get_rank() + 1) * 8 // mesh.size())
            same([p.grad.to_local() for p in parameters], [w[here] for w in want])


def check_what_travels() -> None:
    """Slices on one process send nothing; all others share one collective, and their parameters one more."""
    given = [distribute_tensor(randn(8, 5, seed=i), world(), [Shard(0)]) for i in range(10)]
    for rule, sent in (
        (tensorflow.clip_by_norm(0.5, axes=[1]), []),
        (tensorflow.clip_by_norm(0.5, axes=[0]), [10 * 5 * 8 + 8]),
        (optax.adaptive_grad_clip(0.1), [10 * 5 * 8 + 8] * 2),
        (optax.adaptive_grad_clip(0.1, axis=1), []),
    ):
        with Traffic() as traffic:
            gradclip.clip(given, rule, params=given)
        assert traffic.sent == sent, (rule, traffic.sent)


def check_two_stages() -> None:
    whole, rule = [randn(8, 5), randn(3, 2, seed=1)], tensorflow.clip_by_norm(0.5, axes=[0])
    given = [distribute_tensor(x, world(), [Shard(0)]) for x in whole]
    norms = gradclip.norm(given, rule)
    with Traffic() as traffic:
        gradclip.scale_by_norm_(given, rule, norms)
    assert traffic.sent == []
    same(given, gradclip.clip(whole, rule).grads)


def check_beside_a_group_with_one_norm() -> None:
    whole, along = {"a": randn(8, 5), "b": randn(6, seed=1)}, tensorflow.clip_by_norm(0.5, axes=[0])
    groups = [gradclip.Group(along, "a"), gradclip.Group(dialect.clip_grad_norm(0.5, error_if_nonfinite=True), "b")]
    given = {name: distribute_tensor(x, world(), [Shard(0)]) for name, x in whole.items()}
    want = gradclip.clip(whole, groups).grads
    same(list(gradclip.clip(given, groups).grads.values()), list(want.values()))
    whole["b"][-1] = math.nan
    given["b"] = distribute_tensor(whole["b"], world(), [Shard(0)])
    with pytest.raises(RuntimeError, match=rf"Received: rank {dist.get_world_size() - 1 if dist.get_world_size() < 4 else 2}"):
        gradclip.clip(given, groups)


def check_a_nan_spoils_its_slice() -> None:
    whole = randn(8, 3)
    whole[-1, 1] = math.nan
    for rule in RULES[:6]:
        given = [distribute_tensor(whole, world(), [Shard(0)], src_data_rank=None)]
        got = gradclip.clip(given, rule, params=[distribute_tensor(randn(8, 3, seed=1), world(), [Shard(0)])])
        want = gradclip.clip([whole], rule, params=[randn(8, 3, seed=1)])
        same(got.grads, want.grads)


def refuses(match: str, rule: Rule, x: DTensor) -> None:
    with pytest.raises(ValueError, match=match):
        gradclip.clip([x], rule, params=[x])


def check_what_is_refused() -> None:
    split = distribute_tensor(randn(4, 3), world(), [Shard(0)])
    summed = DTensor.from_local(randn(4, 3), world(), [Partial()], run_check=False)
    along = tensorflow.clip_by_norm(1.0, axes=[0])
    refuses("needs complete gradients, and these are sharded", optax.per_example_global_norm_clip(1.0), split)
    refuses("needs complete gradients", dataclasses.replace(tensorflow.clip_by_norm(1.0), relative_to=1e-3), split)
    refuses("cannot be clipped by value or along axes", along, summed)
    refuses("not all would raise", dataclasses.replace(along, error_if_nonfinite=True), split)
    refuses("must have one element", tensorflow.clip_by_norm(torch.ones(1, 3), axes=[0]), split)
    refuses("must have one element", tensorflow.clip_by_value(torch.zeros(4, 3), torch.ones(4, 3)), split)
    with pytest.raises(ValueError, match="A gradient and its parameter must have the same shape"):
        gradclip.clip([split], optax.adaptive_grad_clip(0.1), params=[distribute_tensor(randn(4, 3), world(), [Replicate()])])


def check_4_two_dimensions() -> None:
    """Each placement on a mesh of two dimensions: only the processes that share a slice communicate.

    Each rule with each placement along either dimension, by turns.
    """
    grid, places = square(), (Shard(0), Shard(1), Replicate())
    for i, j in itertools.product(range(3), repeat=2):
        placed, whole = [places[i], places[j]], [randn(7, 5), randn(4, 6, seed=1)]
        given = [distribute_tensor(x, grid, placed) for x in whole]
        for rule in (*RULES[(i + j) % 2 : 5 : 2], RULES[5]):
            with Traffic() as traffic:
                got = gradclip.clip(given, rule, params=given)
            same(got.grads, gradclip.clip(whole, rule, params=whole).grads)
        assert isinstance(got.grads[0], DTensor)
        assert len(traffic.sent) == 2 * int(Shard(1) in placed), "axis 1: for gradients, and for parameters"
