"""docs/slots.md: what it says of Paddle's mixed precision runs, and prints what it shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pages
import pytest
from paddle.amp import grad_scaler


def test_mixed_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paddle's scaler is disabled on a CPU, although a CPU has all of its operations: this pretends to be another device."""
    device = SimpleNamespace(is_gpu_place=lambda: True)
    monkeypatch.setattr(grad_scaler, "_dygraph_tracer", lambda: SimpleNamespace(_expected_place=device))
    text = pages.section(pages.DOCS / "slots.md", "Mixed precision").partition("With Paddle")[2]
    names: dict[str, Any] = {}
    with pytest.warns(UserWarning, match="amp_guard can only be enabled"):
        assert pages.run(text, "docs/slots.md", names) == text
    assert names["scaler"]._scale.item() == 1024.0
