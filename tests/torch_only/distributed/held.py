"""The topologies of ``tests/topologies.py`` as torch's tensors, and their clip on one rank."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import topologies
import torch
from topologies import Case, Held, Outcome
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


def axes(case: Case, held: Held) -> list[int]:
    """Return the mesh axes that the tensor's type names."""
    if held.how in ("typed", "equal", "twice"):
        return list(range(len(case.mesh)))
    if held.how == "sub":
        mine = [d for d, kind in enumerate(held.placements) if kind != "R"]
        return mine or [d for d in range(len(case.mesh)) if d != case.stage]
    return [0] if held.how == "both" else []


def tensor(case: Case, held: Held, here: np.ndarray, shape: Sequence[int]) -> torch.Tensor:
    local = torch.tensor(here).to(getattr(torch, held.dtype))
    named = axes(case, held)
    if held.how == "sparse":
        return local.to_sparse(1)
    if not named:
        return local
    mesh = mesh_of(case, which=int(held.how == "equal"))
    if len(named) < mesh.ndim:
        mesh = mesh[tuple("abc"[d] for d in named)]
    if held.how == "both":  # the rows are divided by hand first, then by the type
        shape = (shape[0] // case.mesh[1], *shape[1:])
    size, stride = torch.Size(shape), torch.empty(tuple(shape), device="meta").stride()
    kinds = [placement(held.placements, d, case.mesh) for d in named]
    return DTensor.from_local(local, mesh, kinds, run_check=False, shape=size, stride=stride)


def clipped(case: Case) -> tuple[Any, Any, dict[str, torch.Tensor | None]]:
    """Clip on this rank; return the norm, whether to skip the step, and this rank's shards."""
    at = mesh_of(case).get_coordinate()
    assert at is not None
    stage = 0 if case.stage is None else at[case.stage]
    params: dict[str, torch.nn.Parameter] = {}
    shards: dict[str, Any] = {}
    for held in case.held:
        own = topologies.local(topologies.parameter(held, stage), case.mesh, at, held.placements)
        unsummed = dataclasses.replace(held, placements=tuple("R" if k in "PA" else k for k in held.placements))
        how = dataclasses.replace(unsummed, how="plain") if held.how == "sparse" else unsummed
        params[held.name] = torch.nn.Parameter(tensor(case, how, own, held.shape))
        if not case.is_missing(held, at):
            params[held.name].grad = tensor(case, held, topologies.mine(case, held, at), held.shape)
        if held.how in ("told", "asked", "both"):
            mesh = mesh_of(case)
            shards[held.name] = mesh["b"] if held.how == "both" else mesh["a"].get_group() if mesh.ndim > 1 else mesh
        if held.how == "twice":
            params["again"] = params[held.name]
    more: dict[str, Any] = {}
    if shards:
        asked = any(held.how == "asked" for held in case.held)
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
    if refused := topologies.why(case.rule, case.held, case.stage):
        with pytest.raises(ValueError, match=refused):
            clipped(case)
        return "refused"
    norm, skip, new = clipped(case)
    at = mesh_of(case).get_coordinate()
    assert at is not None
    for held in case.held:
        x = new[held.name]
        if x is None:
            assert case.is_missing(held, at)
            continue
        got = x.to_local() if isinstance(x, DTensor) else x.to_dense() if x.is_sparse else x
        want = topologies.expected(case, out, held, at)
        distance = topologies.ulps(got.detach().double().numpy(), want, held.dtype)
        assert distance <= 4, f"{held.name}: {distance} ulp: {got} for {want}"
    if case.rule in ("axes", "AGC", "by value"):
        return None
    if case.rule == "by tensor":
        for i, held in enumerate(case.held):
            n = norm[held.name]
            assert (n is None) == case.is_missing(held, at)
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
