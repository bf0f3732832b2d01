"""Starts processes as ``torchrun`` does, but forks them after the imports, which take each process four seconds.

``python -m torch_only.distributed.forked 4 worker results.json`` calls ``worker.main`` in each of four.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any, NoReturn

import torch
import torch.distributed.fsdp
import torch.distributed.tensor
from launched import free_ports


def run(module: Any, variables: dict[str, str]) -> NoReturn:
    os.environ.update(variables)
    status = 1
    try:
        module.main()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> int:
    """Return 0 if all succeed; if one fails, end the others."""
    count, name = int(sys.argv.pop(1)), sys.argv.pop(1)
    module = importlib.import_module(f"torch_only.distributed.{name}")
    torch.compiler.reset()  # imports what torch imports late
    [port] = free_ports(1)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    children = set()
    for rank in range(count):
        child = os.fork()
        if not child:
            run(module, shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        children.add(child)
    failed = 0
    while children:
        child, status = os.wait()
        children.discard(child)
        if status and not failed:
            failed = 1
            for other in children:
                os.kill(other, 9)
    return failed


if __name__ == "__main__":
    sys.exit(main())
