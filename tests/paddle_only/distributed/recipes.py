"""Runs the recipes of ``docs/distributed.md`` one after the other, each on its own models.

``python -m forked 4 paddle_only.distributed.recipes docs/distributed.md``
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import frameworks.paddle  # noqa: F401  (its import warns)
import paddle.distributed as dist
from paddle_only.distributed.common import agree

import gradclip
from gradclip.dialects import torch as dialect


def check_a_step(names: dict[str, Any], recipe: str) -> None:
    """Another step on the last gradients moves all processes' parameters by the limit times the learning rate."""
    parameters = (names.get("model") or names["part"]).parameters()
    before = [p.detach().clone() for p in parameters]
    names["optimizer"].step()
    moved = [p.detach() - q for p, q in zip(parameters, before, strict=True)]
    reduce = None if "model" in names else dist.get_group()
    length = float(gradclip.norm(moved, dialect.clip_grad_norm(1.0), reduce=reduce))
    agree(length)
    assert abs(length / 0.1 - 0.1) < 1e-4, f"{length / 0.1} and not 0.1:\n{recipe}"


def main() -> None:
    warnings.simplefilter("error")
    text = Path(sys.argv[1]).read_text("utf-8").partition("## Paddle")[2].partition("\n## ")[0]
    first, *recipes = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shared: dict[str, Any] = {}
    exec(compile(first, "the first block", "exec"), shared)
    for recipe in recipes:
        names = dict(shared)
        exec(compile(recipe, recipe.partition("\n")[0], "exec"), names)
        check_a_step(names, recipe)
    dist.barrier()  # if one process exits while another still sends, the other aborts
    if dist.get_rank() == 0:
        print(f"{len(recipes)} recipes")
