"""Runs random clips on four ranks; a wrong norm, a wrong gradient, ranks that disagree and a hang are failures.

``python -m forked 4 torch_only.distributed.fuzzing results.json 0 2000`` runs the seeds 0 to 1999. After a hang the ranks end:
the seed is in the file, and another call goes on behind it.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch_only.distributed import common
from torch_only.distributed.drawn import Case, Gradient, drawn

import gradclip
from gradclip.core.errors import GradclipError, GradclipWarning
from gradclip.dialects import torch as dialect

torch.compiler.reset()  # imports what torch imports late: once, before the processes are forked

HANGS = 120  #: seconds after which ranks that wait for each other hang
WORDS = {"P": Partial(), "A": Partial("avg"), "R": Replicate(), "S0": Shard(0), "S1": Shard(1)}
LIMIT = 0.5


def placed(x: torch.Tensor, grad: Gradient, words: tuple[str, ...], meshes: dict[str, DeviceMesh]) -> DTensor:
    stride = torch.empty(grad.shape, device="meta").stride()
    kinds = [WORDS[word] for word in words]
    return DTensor.from_local(x, meshes[grad.mesh], kinds, run_check=False, shape=torch.Size(grad.shape), stride=stride)


def parameter(case: Case, i: int, rank: int, meshes: dict[str, DeviceMesh]) -> torch.nn.Parameter:
    """Return a parameter with the gradient that this rank has, and the mistake that it makes."""
    grad = case.gradients[i]
    local = torch.from_numpy(grad.local(rank))
    if not grad.mesh:
        made = torch.nn.Parameter(torch.zeros(grad.shape), requires_grad=not grad.is_frozen)
        made.grad = None if rank in grad.missing else local
        return made
    own = torch.zeros(Gradient(**{**vars(grad), "placed": grad.of_param}).local(rank).shape)
    made = torch.nn.Parameter(placed(own, grad, grad.of_param, meshes), requires_grad=not grad.is_frozen)
    if rank in grad.missing:
        return made
    what = case.mistake[0] if case.mistake and case.mistake[1:] == (rank, i) else ""
    if what == "NaN":
        local.view(-1)[0] = math.nan
    if what == "read-only":
        local = torch.ones(1).expand(local.shape)
    words = grad.placed
    made.grad = local if grad.how == "bare" else placed(local, grad, words, meshes)
    if what == "placement":
        made.grad = DTensor.from_local(
            torch.zeros(grad.shape), meshes[grad.mesh], [Partial("product")] * len(words), run_check=False
        )
    return made


def run(case: Case, meshes: dict[str, DeviceMesh]) -> dict[str, Any]:
    """Clip on this rank; return the norm or the error, and how far the gradients are from the right ones."""
    rank = dist.get_rank()
    params = {grad.name: parameter(case, i, rank, meshes) for i, grad in enumerate(case.gradients)}
    before = {name: None if p.grad is None else _local(p.grad).clone() for name, p in params.items()}
    told = {name: dist.group.WORLD for name in params if name.startswith("told")}
    options: dict[str, Any] = {"shards": told} if told else {}
    if case.has_stages:
        options["reduce"] = meshes["stages"]
    is_nan = case.mistake is not None and case.mistake[0] == "NaN"
    rule = dialect.clip_grad_norm(LIMIT, case.order, error_if_nonfinite=is_nan)
    try:
        norm = float(gradclip.clip_(params, rule, **options).norm)
    except GradclipError as error:
        same = all(
            p.grad is None or torch.equal(_local(p.grad).nan_to_num(), before[name].nan_to_num()) for name, p in params.items()
        )
        return {"error": f"{type(error).__name__}: {error}", "unchanged": same}
    coefficient = min(1.0, LIMIT / (norm + 1e-6)) if norm == norm else math.nan
    far = 0.0
    for name, p in params.items():
        if p.grad is not None and p.grad.numel():
            want = before[name].double().numpy() * coefficient
            far = max(far, float(oracle.ulps(_local(p.grad).double().numpy(), want, "float32")) if want.size else 0.0)
    return {"norm": norm, "far": far}


def _local(x: torch.Tensor) -> torch.Tensor:
    return x.to_local() if isinstance(x, DTensor) else x


def wrong(case: Case, found: list[dict[str, Any]]) -> str:
    """Return what is wrong with the results of all ranks, or ""."""
    errors = [one.get("error", "") for one in found]
    if case.mistake is not None:
        rank = case.mistake[1]
        if not errors[rank]:
            return f"rank {rank} did not raise"
        sharing = [rank - rank % 2, rank - rank % 2 + 1]
        if case.gradients[case.mistake[2]].mesh != "pair" or case.has_stages:
            sharing = list(range(dist.get_world_size()))
        if not case.device and not all(errors[other] for other in sharing):  # without a look at a value they cannot know
            return f"not all ranks raised: {errors}"
        return "" if all(one.get("unchanged", True) for one in found) else "a failed call changed gradients"
    if case.device and any("This process lacks a gradient that others have" in error for error in errors):
        return ""  # a replica that the first of its ranks lacks
    if any(errors):
        return f"ranks raised: {errors}"
    if max(one["far"] for one in found) > 4:
        return f"gradients are {[one['far'] for one in found]} ulp away"
    # a rank without a tensor to measure has a norm of float32, the others one of float64, where no value is free to read
    norms = [float(np.float32(one["norm"])) if case.device else one["norm"] for one in found]
    pairs = [grad.mesh == "pair" for grad in case.gradients]
    for one, other in ((0, 1), (2, 3), *([] if any(pairs) and not case.has_stages else [(0, 2)])):
        if norms[one] != norms[other]:
            return f"the ranks have different norms: {norms}"
    if case.device and any(grad.missing for grad in case.gradients):
        return ""  # who lacks a replica is not known without a look at a value
    for rank, norm in enumerate(norms):
        want = case.norm(rank)
        if oracle.ulps(norm, want, "float32") > allowed(case):
            return f"rank {rank}: norm {norm!r} for {want!r}"
    return ""


def allowed(case: Case) -> float:
    """Return how many ulp a norm may be off.

    As on a device, torch adds up at most 32 powers in float32, and its CPU does so one after the other. The root divides the
    relative error of the sum by the order.
    """
    if not case.device or not case.order or math.isinf(case.order):
        return 4
    return 8 * max(1.0, 1 / abs(case.order))


def attempt(case: Case, meshes: dict[str, DeviceMesh]) -> dict[str, Any]:
    try:
        with common.as_on_a_device() if case.device else contextlib.nullcontext():
            return run(case, meshes)
    except BaseException:
        return {"hung": traceback.format_exc()}


def main() -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "None of the parameters has a gradient", GradclipWarning)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=HANGS))
    reports = dist.new_group(timeout=timedelta(seconds=10 * HANGS))
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    meshes = {"line": init_device_mesh("cpu", (4,)), "square": square, "pair": square["tp"], "stages": square["dp"]}
    for mesh in meshes.values():
        for group in mesh.get_all_groups():
            torch.distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=HANGS), group)
    path, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    failures: dict[str, str] = {}
    begun, done, hung = time.monotonic(), 0, False
    for seed in range(first, first + count):
        case = drawn(seed)
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, attempt(case, meshes), group=reports)
        done += 1
        text = next((one["hung"] for one in found if "hung" in one), "") or wrong(case, found)
        if text:
            failures[str(seed)] = f"{case}\n{text}"
        if hung := any("hung" in one for one in found):
            break  # the groups are of no use any more
    if dist.get_rank() == 0:
        took = time.monotonic() - begun
        path.write_text(json.dumps({"failures": failures, "done": done, "hung": hung, "seconds": took}), encoding="utf-8")
    common.leave() if not hung else sys.exit(0)
