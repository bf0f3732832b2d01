from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from gradclip.backends.jax import places


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Treat the host as an accelerator. Compiled functions from before and from here must not be mixed."""
    jax.clear_caches()
    monkeypatch.setattr(places, "is_host", lambda platform: False)
    yield
    jax.clear_caches()
