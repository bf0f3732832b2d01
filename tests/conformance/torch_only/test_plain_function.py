"""One command tests a clip as PyTorch's users write it: in place, and returning the norm."""

from __future__ import annotations

from pathlib import Path

import copies
import pytest

SOURCE = """
import torch

def clip(grads, max_norm):
    if not max_norm >= 0:
        raise ValueError("max_norm must not be negative")
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
    coefficient = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for g in grads:
        g.mul_(coefficient)
    return norm
"""


def conformance(folder: Path, source: str) -> tuple[int, str]:
    (folder / "train.py").write_text(source)
    command = ["-m", "gradclip", "conformance", "train.py:clip", "--dialect", "torch.clip_grad_norm_", "--all"]
    select = ["--select=*/[AB]*", "--select=*/order_invariance", "--select=*/split_invariance"]
    done = copies.run("torch", *command, *select, cwd=folder)
    return done.returncode, done.stdout


def test_a_right_one_conforms(tmp_path: Path) -> None:
    status, printed = conformance(tmp_path, SOURCE)
    assert (status, "clip conforms" in printed) == (0, True), printed


@pytest.mark.slow("a report of the command that names no failure; the suite's own mutants have such a clip")
def test_one_that_clips_each_by_itself_is_found_out(tmp_path: Path) -> None:
    wrong = SOURCE.replace(
        "g.mul_(coefficient)", "g.mul_(torch.clamp(max_norm / (torch.linalg.vector_norm(g) + 1e-6), max=1.0))"
    )
    status, printed = conformance(tmp_path, wrong)
    assert status == 1
    assert "clip: torch.clip_grad_norm_/A2" in printed
    assert "changes the direction of the step" in printed
