"""The lines that ``gradclip explain`` prints for torch run, and clip as the explained call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from migrate.printed import KNOWN, Printed, check, lines, ran

LINES = lines("torch")


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


@pytest.mark.parametrize("printed", LINES, ids=str)
def test_a_printed_line_runs(printed: Printed) -> None:
    check(printed, run)


def test_there_are_lines_of_natives_and_of_gradclip() -> None:
    ours = [printed for printed in LINES if "gradclip." in printed.line]
    assert len(ours) >= 20
    assert len(LINES) - len(ours) >= 18
