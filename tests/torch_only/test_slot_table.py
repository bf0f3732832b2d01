"""Each cell of the slots' table for PyTorch: ``gradclip.clipped``, eager, with a compiled step, and fused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from slots import CELLS, compare, counted

import gradclip


@pytest.mark.needs("names_parameters")
@pytest.mark.parametrize("how", ["eager", "fused", "compiled"])
@pytest.mark.parametrize("cell", CELLS)
def test_each_cell_is_as_with_plain_calls(cell: str, how: str) -> None:
    torch.compiler.reset()
    monitor, make = gradclip.Monitor(), CELLS[cell][0]
    params = {"a": torch.nn.Parameter(torch.ones(1)), "b": torch.nn.Parameter(torch.ones(2))}
    optimizer: Any = gradclip.clipped(torch.optim.SGD(params.items(), lr=1.0, fused=how == "fused"), make(), monitor=monitor)
    step = torch.compile(optimizer.step, backend="eager") if how == "compiled" else optimizer.step

    def stepped(grads: dict[str, Any]) -> list[np.ndarray]:
        for p, g in zip(params.values(), grads.values(), strict=True):
            p.grad = torch.from_numpy(g)
        step()
        return [p.detach().numpy().copy() for p in params.values()]

    steps, skipped = compare(cell, stepped)
    assert counted(monitor) == (steps, skipped)
    assert optimizer.gradclip.skipped == skipped
