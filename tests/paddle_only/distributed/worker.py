"""Runs in each of several processes: all checks one after the other; their failures go to a file.

``python -m forked 2 paddle_only.distributed.worker results.json``
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import frameworks.paddle  # noqa: F401  (its import warns)
import paddle.distributed as dist
from launched import failure
from paddle_only.distributed import engines, faults, missing, norms, reducing, tensors

MODULES = (norms, reducing, tensors, missing, faults, engines)


def checks(processes: int) -> dict[str, Callable[[], None]]:
    """Return the checks for this number of processes: functions called ``check_...``, or ``check_4_...`` for four only.

    ``check_2_...`` is for two only: these checks make groups. On gloo, Paddle 3.3.1's ``new_group`` sometimes reads the
    addresses of an earlier group and waits for ever; with more than two processes it does so nearly each time.
    """
    found = {}
    for module in MODULES:
        for name, function in vars(module).items():
            only = re.match(r"check_(\d)_", name)
            if name.startswith("check_") and (only is None or int(only[1]) == processes):
                found[f"{module.__name__.rpartition('.')[2]}.{name}"] = function
    return found


def main() -> None:
    warnings.simplefilter("error")
    dist.init_parallel_env()
    failures: dict[str, list[str]] = {}
    for name, check in checks(dist.get_world_size()).items():
        failed = failure(check)
        found: list[str] = []
        dist.all_gather_object(found, failed)
        failures[name] = [f"rank {rank}: {text}" for rank, text in enumerate(found) if text]
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(failures), encoding="utf-8")
    dist.barrier()  # if one process exits while another still sends, the other aborts
