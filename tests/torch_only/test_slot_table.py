"""Each cell of the slots' table for PyTorch: ``gradclip.clipped``, eager, with a compiled step, and fused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from slots import CELLS, gradients, run

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
    wanted, before = run(cell), [torch.ones(1), torch.ones(2)]
    for n, (want, skipped) in zip(CELLS[cell][1], wanted, strict=True):
        for p, g in zip(params.values(), gradients(n).values(), strict=True):
            p.grad = torch.from_numpy(g)
        step()
        for p, other, old in zip(params.values(), want, before, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), other, rtol=1e-5, atol=1e-6)
            assert not skipped or torch.equal(p, old)
        before = [p.detach().clone() for p in params.values()]
    found = {name.rpartition("/")[2]: x for name, x in monitor.report().items()}
    assert (found["steps"], found["skipped_steps"]) == (len(wanted), sum(skipped for _, skipped in wanted))
    assert optimizer.gradclip.skipped == sum(skipped for _, skipped in wanted)
