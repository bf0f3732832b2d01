"""``gradclip doctor`` where every step is left out: the data has a NaN, and the gradients are zeroed each time."""

from __future__ import annotations

from pathlib import Path

import pytest
import watched

LEFT_OUT = """
from on_torch import regression
import torch

model, optimizer, loss = regression()
scaler = torch.amp.GradScaler("cpu", enabled=ENABLED)
for _ in range(99):
    optimizer.zero_grad()
    scaler.scale(loss() * float("nan")).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if ENABLED or torch.isfinite(norm):
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize("has_scaler", [True, False])
def test_steps_that_are_left_out_for_ever(has_scaler: bool, tmp_path: Path) -> None:
    told = watched.told(watched.written(tmp_path, "torch", LEFT_OUT.replace("ENABLED", str(has_scaler))))
    assert told.report["ended"] == "stopped"
    assert [(x["code"], x["line"]) for x in told.report["findings"]] == [("GD201", 11)]
    assert "not finite in 30 clips" in told.report["findings"][0]["text"]
