"""Counts the collectives and bytes of a clip of distributed tensors on two processes.

``python -m paddle.distributed.launch --nproc_per_node 2 counting.py results.md`` writes the table of ``docs/collectives.md``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(GLOG_v="4")  # Paddle logs each collective of its C++ code; it reads this once, on import

import frameworks.paddle  # noqa: F401  (its import warns)
import paddle
import paddle.distributed as dist
from paddle_only.distributed.common import Partial, Replicate, Shard, addends, exact, placed, traffic, world

import gradclip

COUNT = 100
ENOUGH = 1e9  #: a limit that clips nothing

PLACEMENTS = {"sharded (`Shard`)": Shard(0), "replicated (`Replicate`)": Replicate(), "addends (`Partial`)": Partial()}


def made(placement: Any) -> list[tuple[Any, Any]]:
    """Return this many parameters of four elements, with gradients."""
    x, pairs = paddle.ones([4]), []
    for _ in range(COUNT):
        p = placed(paddle.create_parameter([4], "float32"), world(), Replicate() if placement.is_partial() else placement)
        p.grad = addends(x, world()) if placement.is_partial() else placed(x, world(), placement)
        pairs.append((p, p.grad))
    return pairs


def logged(call: Callable[[], Any]) -> int:
    """Count the collectives that Paddle logs in a call."""
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            call()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        return sum(b"in Resharding on" in line and b"Call `All" in line for line in log)


def row(name: str, placement: Any) -> str:
    pairs = made(placement)
    with traffic() as sent:
        gradclip.clip_grad_norm_([p for p, _ in pairs], ENOUGH)
    ours = f"{len(sent)} of {sum(sent)} B"
    in_slot = logged(lambda: paddle.nn.ClipGradByGlobalNorm(ENOUGH)(pairs))
    found: list[float] = []
    in_loop = logged(lambda: found.append(float(paddle.nn.utils.clip_grad_norm_([p for p, _ in pairs], ENOUGH))))
    wanted = exact([dist.unshard_dtensor(g) for _, g in pairs])
    wrong = "" if abs(found[0] / wanted - 1) < 1e-5 else f", and {found[0] / wanted:.2f} times the norm"
    return f"| {name} | {ours} | {in_slot} | {in_loop}{wrong} |"


def main() -> None:
    dist.init_parallel_env()
    lines = ["| 100 gradients | gradclip | `paddle.nn.ClipGradByGlobalNorm` | `paddle.nn.utils.clip_grad_norm_` |"]
    lines += ["| --- | --- | --- | --- |"]
    lines += [row(name, placement) for name, placement in PLACEMENTS.items()]
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")
    dist.barrier()  # if one process exits while another still sends, the other aborts


if __name__ == "__main__":
    main()
