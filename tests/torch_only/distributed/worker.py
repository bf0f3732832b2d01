"""Runs in each of several processes: all checks one after the other; their failures go to a file.

``python -m forked 2 torch_only.distributed.worker results.json``
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from launched import TIME_LIMIT, failure
from torch_only.distributed import (
    axes,
    common,
    faults,
    following,
    groups,
    meshes,
    missing,
    norms,
    recipes,
    reducing,
    shards,
    skipping,
    trainers,
    training,
)

torch.compiler.reset()  # imports what torch imports late: once, before the processes are forked

MODULES = (recipes, norms, axes, meshes, missing, reducing, shards, groups, following, skipping, training, trainers, faults)


def checks(processes: int) -> dict[str, Callable[[], None]]:
    """Return the checks for this number of processes: functions called ``check_...``, or ``check_4_...`` for four only."""
    found = {}
    for module in MODULES:
        for name, function in vars(module).items():
            if name.startswith("check_") and (not name.startswith("check_4_") or processes == 4):
                found[f"{module.__name__.rpartition('.')[2]}.{name}"] = function
    return found


def main() -> None:
    common.fail_on_warnings()
    torch.set_num_threads(1)
    todo = checks(int(os.environ["WORLD_SIZE"]))
    done = {name: failure(todo[name]) for name in todo if name == "recipes.check_4_recipes"}  # it starts the process group
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=timedelta(seconds=TIME_LIMIT))
    reports = dist.new_group(timeout=timedelta(seconds=TIME_LIMIT))  # a separate group, so that a failed check affects no other
    failures: dict[str, list[str]] = {}
    for name, check in todo.items():
        failed = done[name] if name in done else failure(check)
        found: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(found, failed, group=reports)
        failures[name] = [f"rank {rank}: {text}" for rank, text in enumerate(found) if text]
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(failures), encoding="utf-8")
    common.leave()
