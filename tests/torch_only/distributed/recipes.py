"""The recipes of ``docs/distributed.md``, one after the other, each on its own models."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.distributed as dist
from launched import TESTS
from torch_only.distributed.common import agree

import gradclip
from gradclip.dialects import torch as dialect

DOCS = TESTS.parent / "docs" / "distributed.md"


def check_4_recipes() -> None:
    """The first block starts the process group, as in a user's script: no check may have started it."""
    text = DOCS.read_text("utf-8").partition("## PyTorch")[2].partition("\n## ")[0]
    first, *recipes = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(recipes) == text.count("\n```python\n") - 1 > 0
    torch.manual_seed(0)
    shared: dict[str, Any] = {}
    exec(compile(first, "the first block", "exec"), shared)
    for recipe in recipes:
        names = dict(shared)
        exec(compile(recipe, recipe.partition("\n")[0], "exec"), names)
        agree(float(names["norm"]))
        assert float(names["norm"]) > 0.1, f"nothing was clipped:\n{recipe}"
        module = names.get("model") or names["part"]
        reduce = None if "model" in names else dist.group.WORLD
        params, shards = dict(module.named_parameters()), names.get("shards")
        left = gradclip.norm(params, dialect.clip_grad_norm(1.0), reduce=reduce, shards=shards)
        assert abs(left - 0.1) < 1e-4, f"clipped to {left}:\n{recipe}"
