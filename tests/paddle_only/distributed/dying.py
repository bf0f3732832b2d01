"""A process dies before a clip: the error that the other gets, and when.

``python -m forked 2 paddle_only.distributed.dying results.json``
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import frameworks.paddle  # noqa: F401  (its import warns)
import paddle
import paddle.distributed as dist

import gradclip
from gradclip.dialects import torch as dialect


def main() -> None:
    dist.init_parallel_env()
    rule, group = dialect.clip_grad_norm(1.0), dist.get_group()
    gradient = paddle.to_tensor([30.0, 40.0])
    gradclip.norm([gradient], rule, reduce=group)  # with both processes it succeeds
    if dist.get_rank() == 1:
        time.sleep(1)  # until the other process waits
        os._exit(0)
    began, told = time.monotonic(), ""
    try:
        gradclip.clip_([gradient], rule, reduce=group)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    results = {"told": told, "took": time.monotonic() - began, "gradient": gradient.tolist()}
    Path(sys.argv[1]).write_text(json.dumps(results), encoding="utf-8")
    os._exit(0)  # the usual shutdown would wait for the dead process
