"""The topologies of ``tests/support/topologies.py`` as torch's tensors, and their clip on one rank."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import topologies
import torch
from topologies import Case, Gradient, Outcome
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import gradclip

_own = threading.local()  # a rank's meshes, each made once


def mesh_of(case: Case, *, which: int = 0) -> DeviceMesh:
    """Return the mesh, or another equal one."""
    meshes = _own.__dict__.setdefault("meshes", {})
    if (case.mesh, which) not in meshes:
        names = tuple("abc"[: len(case.mesh)])
        meshes[case.mesh, which] = init_device_mesh("cpu", case.mesh, mesh_dim_names=names)
    found: DeviceMesh = meshes[case.mesh, which]
    return found


def placement(kinds: Sequence[str], d: int, mesh: Sequence[int]) -> Any:
    kind = kinds[d]
    if kind[0] == "Z":
        return _StridedShard(int(kind[1]), split_factor=mesh[d + 1])
    return {"R": Replicate(), "P": Partial(), "A": Partial("avg")}.get(kind) or Shard(int(kind[1]))


def axes(case: Case, grad: Gradient) -> list[int]:
    """Return the mesh axes that the tensor's type names."""
    if grad.how in ("typed", "equal", "twice"):
        return list(range(len(case.mesh)))
    if grad.how == "sub":
        mine = [d for d, kind in enumerate(grad.placements) if kind != "R"]
        return mine or [d for d in range(len(case.mesh)) if d != case.stage]
    return [0] if grad.how == "both" else []


def tensor(
    case: Case, grad: Gradient, here: np.ndarray, shape: Sequence[int], named: Sequence[int] | None = None
) -> torch.Tensor:
    """Return a tensor on the mesh of these axes, or of its own: a gradient's mesh has the processes of its parameter's."""
    local = torch.tensor(here).to(getattr(torch, grad.dtype))
    named = axes(case, grad) if named is None else named
    if grad.how == "sparse":
        return local.to_sparse(1)
    if not named:
        return local
    mesh = mesh_of(case, which=int(grad.how == "equal"))
    if len(named) < mesh.ndim:
        mesh = mesh[tuple("abc"[d] for d in named)]
    if grad.how == "both":  # the rows are divided by hand first, then by the type
        shape = (shape[0] // case.mesh[1], *shape[1:])
    size, stride = torch.Size(shape), torch.empty(tuple(shape), device="meta").stride()
    kinds = [placement(grad.placements, d, case.mesh) for d in named]
    return DTensor.from_local(local, mesh, kinds, run_check=False, shape=size, stride=stride)


def clipped(case: Case) -> tuple[Any, Any, dict[str, torch.Tensor | None]]:
    """Clip on this rank; return the norm, whether to skip the step, and this rank's shards."""
    at = mesh_of(case).get_coordinate()
    assert at is not None
    stage = 0 if case.stage is None else at[case.stage]
    params: dict[str, torch.nn.Parameter] = {}
    shards: dict[str, Any] = {}
    for grad in case.grads:
        own = topologies.local(topologies.parameter(grad, stage), case.mesh, at, grad.placements)
        unsummed = dataclasses.replace(grad, placements=tuple("R" if k in "PA" else k for k in grad.placements))
        how = dataclasses.replace(unsummed, how="plain") if grad.how == "sparse" else unsummed
        params[grad.name] = torch.nn.Parameter(
            tensor(case, how, own, grad.shape, axes(case, how if how.how == "plain" else grad))
        )
        if not case.is_missing(grad, at):
            params[grad.name].grad = tensor(case, grad, topologies.mine(case, grad, at), grad.shape)
        if grad.how in ("told", "asked", "both"):
            mesh = mesh_of(case)
            shards[grad.name] = mesh["b"] if grad.how == "both" else mesh["a"].get_group() if mesh.ndim > 1 else mesh
        if grad.how == "twice":
            params["again"] = params[grad.name]
    more: dict[str, Any] = {}
    if shards:
        asked = any(grad.how == "asked" for grad in case.grads)
        more["shards"] = (lambda name, p: shards.get(name)) if asked else shards
    if case.stage is not None:
        more["reduce"] = mesh_of(case)["abc"[case.stage]]
    if case.form == "in place":
        result = gradclip.clip_(params, topologies.rule(case), **more)
        new = {name: p.grad for name, p in params.items()}
    elif case.missing:
        result = gradclip.clip(params, topologies.rule(case), **more)
        new = result.grads
    else:
        aside = {"params": params} if case.rule == "AGC" else {}
        result = gradclip.clip({name: p.grad for name, p in params.items()}, topologies.rule(case), **more, **aside)
        new = result.grads
    return result.norm, result.skip, new


def check(case: Case, out: Outcome) -> Any:
    """Clip on this rank and compare; return the norm, which all ranks should share."""
    if refused := topologies.why(case.rule, case.grads, case.stage):
        with pytest.raises(ValueError, match=refused):
            clipped(case)
        return "refused"
    norm, skip, new = clipped(case)
    at = mesh_of(case).get_coordinate()
    assert at is not None
    for grad in case.grads:
        x = new[grad.name]
        if x is None:
            assert case.is_missing(grad, at)
            continue
        got = x.to_local() if isinstance(x, DTensor) else x.to_dense() if x.is_sparse else x
        want = topologies.expected(case, out, grad, at)
        distance = topologies.ulps(got.detach().double().numpy(), want, grad.dtype)
        assert distance <= 4, f"{grad.name}: {distance} ulp: {got} for {want}"
    if case.rule in ("axes", "AGC", "by value"):
        return None
    if case.rule == "by tensor":
        for i, grad in enumerate(case.grads):
            n = norm[grad.name]
            assert (n is None) == case.is_missing(grad, at)
            if n is not None:
                near(n, out.norms[0][i])
        return None
    for got, want in zip(norm if case.rule == "groups" else [norm], out.norms, strict=True):
        near(got, want)
    assert bool(skip) == out.skips
    return [float(n) for n in (norm if case.rule == "groups" else [norm])]


def near(got: Any, want: Any) -> None:
    distance = topologies.ulps(float(got), float(want), "float32")
    assert distance <= 4, f"norm {float(got)!r} for {float(want)!r}: {distance} ulp"
