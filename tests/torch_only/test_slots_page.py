"""docs/slots.md: what it says of PyTorch's optimizers runs, and prints what it shows."""

from __future__ import annotations

from typing import Any

import pages
import pytest
import torch

import gradclip
from gradclip.dialects import torch as dialect


def test_the_recipes() -> None:
    names: dict[str, Any] = {}
    for title in ("Optimizers inside backward", "Muon, Lion and signSGD"):
        text = pages.section(pages.DOCS / "slots.md", title)
        assert len(pages.BLOCK.findall(text)) == 2
        assert pages.run(text, "docs/slots.md", names) == text


def test_mixed_precision() -> None:
    text = pages.section(pages.DOCS / "slots.md", "Mixed precision").partition("With Paddle")[0]
    assert len(pages.BLOCK.findall(text)) == 1
    assert pages.run(text, "docs/slots.md", {}) == text


def test_one_norm_over_all_gradients_inside_backward() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = gradclip.clipped(torch.optim.SGD([weight], lr=1.0), dialect.clip_grad_norm(1.0))
    weight.register_post_accumulate_grad_hook(lambda p: optimizer.step())
    with pytest.raises(ValueError, match="steps inside backward has no norm over all gradients"):
        weight.sum().backward()
    assert weight.tolist() == [1.0, 1.0]
    optimizer.step()
    assert weight.tolist() != [1.0, 1.0]
