"""One process misses the collective, then dies: the error that the other gets, and when.

``python -m forked 2 torch_only.distributed.dying results.json``
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from launched import TIME_LIMIT
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import gradclip

TIMEOUT = 2.0


def clip_alone(mesh: DeviceMesh) -> dict[str, Any]:
    """Return the error and the duration of a clip that the other process does not join."""
    parameter = torch.nn.Parameter(DTensor.from_local(torch.zeros(3), mesh, [Shard(0)], run_check=False))
    parameter.grad = DTensor.from_local(torch.tensor([30.0, 40.0, 0.0]), mesh, [Shard(0)], run_check=False)
    began = time.monotonic()
    error: Exception | None = None
    try:
        gradclip.clip_grad_norm_([parameter], 1.0)
    except Exception as raised:
        error = raised
    took = time.monotonic() - began
    return {"error": type(error).__name__, "text": str(error), "took": took, "grad": parameter.grad.to_local().tolist()}


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIME_LIMIT))
    # named: of two equal meshes, torch's caches give a parameter the first
    patient = init_device_mesh("cpu", (2,), mesh_dim_names=("patient",))
    hasty = DeviceMesh.from_group(dist.new_group(timeout=timedelta(seconds=TIMEOUT)), "cpu")
    if dist.get_rank() == 1:
        dist.barrier()  # until the other process has its error about the absence
        os._exit(0)
    results = {"absent": clip_alone(hasty)}
    dist.barrier()
    results["dead"] = clip_alone(patient)
    Path(sys.argv[1]).write_text(json.dumps(results), encoding="utf-8")
    os._exit(0)  # the usual shutdown would wait for the dead process
