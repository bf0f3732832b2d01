"""Starts processes as ``torchrun`` and Paddle's ``launch`` do, or TensorFlow's users, but forks them after the imports.

``python -m forked 4 torch_only.distributed.worker results.json`` calls the module's ``main`` in each of four.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

from launched import TIME_LIMIT, free_ports


def environments(count: int) -> list[dict[str, str]]:
    """Return each process's variables, for each framework."""
    port, *ports = free_ports(count + 1)
    addresses = [f"127.0.0.1:{own}" for own in ports]
    torchs = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    paddles = {"PADDLE_MASTER": f"127.0.0.1:{port}", "PADDLE_TRAINER_ENDPOINTS": ",".join(addresses)}
    shared = torchs | paddles | {"PADDLE_DISTRI_BACKEND": "gloo", "PADDLE_NNODES": "1"}
    sizes = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "PADDLE_TRAINERS_NUM", "PADDLE_GLOBAL_SIZE", "PADDLE_LOCAL_SIZE")
    ranks = ("RANK", "LOCAL_RANK", "PADDLE_TRAINER_ID", "PADDLE_GLOBAL_RANK", "PADDLE_LOCAL_RANK", "PADDLE_RANK_IN_NODE")
    shared |= dict.fromkeys(sizes, str(count))
    found = []
    for rank, address in enumerate(addresses):
        tensorflows = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}})
        own = {"PADDLE_CURRENT_ENDPOINT": address, "TF_CONFIG": tensorflows}
        found.append(shared | dict.fromkeys(ranks, str(rank)) | own)
    return found


def main() -> int:
    """Return 0 if all succeed; if one fails, end the others."""
    count, name = int(sys.argv.pop(1)), sys.argv.pop(1)
    module = importlib.import_module(name)
    children = set()
    for own in environments(count):
        child = os.fork()
        if not child:
            signal.alarm(TIME_LIMIT)  # it ends, too, if nobody waits for it any more
            os.environ.update(own)
            return module.main() or 0
        children.add(child)
    failed = 0
    while children:
        child, status = os.wait()
        children.discard(child)
        if status and not failed:
            failed = 1
            for other in children:
                os.kill(other, signal.SIGKILL)
    return failed


if __name__ == "__main__":
    sys.exit(main())
