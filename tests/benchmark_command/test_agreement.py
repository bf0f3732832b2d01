"""docs/accuracy.md gives the counted agreement with the natives."""

from __future__ import annotations

import pytest
from frameworks.base import Framework

from benchmarks import agreement


@pytest.mark.needs("trains")  # NumPy has no clip of its own
@pytest.mark.slow("a changed rounding within 4 ulp, which the figures and vectors permit")
def test_some_agree_to_the_bit_and_the_others_to_rounding(backend: Framework) -> None:
    identical, furthest = agreement.compared({"jax": "optax"}.get(backend.name, backend.name), 40)
    assert 4 <= identical < 40
    assert 0 < furthest <= 16
