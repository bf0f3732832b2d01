from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from gradclip.backends.jax import places


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The host passes for an accelerator. What was compiled before or here is not for the other."""
    jax.clear_caches()
    monkeypatch.setattr(places, "is_host", lambda platform: False)
    yield
    jax.clear_caches()
