"""A printed line, run in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from explain.printed.lines import KNOWN, ran


def run(line: str, grads: list[np.ndarray], rule: Any) -> Any:
    tensors = [torch.from_numpy(g) for g in grads]
    model = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(g.shape)) for g in grads)
    for parameter, g in zip(model, tensors, strict=True):
        parameter.grad = g
    names = {"torch": torch, "rule": rule, "grads": tensors, "model": model, "parameters": [*model.parameters()]}
    names["total_norm"] = torch.tensor(KNOWN)
    value = ran(line, names)
    if "result = " in line:
        return value.grads
    return value if "_(" not in line and "clip_grad" not in line else [parameter.grad for parameter in model]
