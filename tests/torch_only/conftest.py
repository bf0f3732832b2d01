from __future__ import annotations

import pytest

from gradclip.backends.torch.slot import fused


@pytest.fixture(autouse=True)
def divides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a fused step divide small gradients too, as on an accelerator: the tests' own are all small."""
    monkeypatch.setattr(fused, "FEW", 0)
