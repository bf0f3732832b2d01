"""The topologies of ``tests/support/topologies.py`` that Paddle can hold on 2 or 4 processes."""

from __future__ import annotations

import functools
import math

import numpy as np
import paddle
import paddle.distributed as dist
import pytest
import topologies
from paddle_only.distributed.common import Partial, Replicate, Shard, agree, close, local
from topologies import Case, Gradient

import gradclip
from gradclip.backends.paddle import versions

SAMPLE = 60


def is_possible(case: Case) -> bool:
    is_known = all(grad.how in ("typed", "plain", "twice", "told", "asked") for grad in case.grads)
    return is_known and case.stage is None and not case.missing and case.is_even() and case.rule not in ("axes", "AGC")


@functools.cache
def mesh_of(lengths: tuple[int, ...]) -> dist.ProcessMesh:
    return dist.ProcessMesh(np.arange(math.prod(lengths)).reshape(lengths).tolist(), dim_names=list("abc"[: len(lengths)]))


def tensor(case: Case, grad: Gradient, at: tuple[int, ...]) -> paddle.Tensor:
    here = paddle.to_tensor(topologies.mine(case, grad, at).astype("float64")).astype(grad.dtype)
    if grad.how in ("plain", "told", "asked"):
        return here
    kinds = [{"R": Replicate(), "P": Partial()}.get(kind) or Shard(int(kind[1])) for kind in grad.placements]
    return versions.dtensor_from_local(here, mesh_of(case.mesh), kinds)


def clips(case: Case) -> None:
    at = tuple(int(i) for i in np.unravel_index(dist.get_rank(), case.mesh))
    given = {grad.name: tensor(case, grad, at) for grad in case.grads}
    given |= {f"{grad.name} again": given[grad.name] for grad in case.grads if grad.how == "twice"}
    ranks = np.arange(math.prod(case.mesh)).reshape(case.mesh)[(slice(None), *at[1:])]
    group = dist.ProcessMesh(ranks.tolist(), dim_names=["a"])
    told = {grad.name: group for grad in case.grads if grad.how in ("told", "asked")}
    clip = gradclip.clip_ if case.form == "in place" else gradclip.clip
    if refused := topologies.why(case.rule, case.grads):
        with pytest.raises(ValueError, match=refused):
            clip(given, topologies.rule(case), shards=told or None)
        return
    result, out = clip(given, topologies.rule(case), shards=told or None), topologies.outcome(case)
    for grad in case.grads:
        close(local(result.grads[grad.name]), topologies.expected(case, out, grad, at), grad.dtype)
    if case.rule not in ("by value", "by tensor"):
        norms = result.norm if case.rule == "groups" else [result.norm]
        agree([float(n) for n in norms])
        for got, want in zip(norms, out.norms, strict=True):
            close(float(got), want)


def check_every_topology() -> None:
    size = dist.get_world_size()
    meshes = [mesh for mesh in topologies.MESHES if math.prod(mesh) == size]
    for case in topologies.in_pairs(filter(is_possible, topologies.cases(meshes=meshes)), SAMPLE):
        try:
            clips(case)
        except Exception as error:
            raise AssertionError(str(case)) from error
