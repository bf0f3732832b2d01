"""What the README says of agreement with the natives, counted."""

from __future__ import annotations

import pytest

from benchmarks import agreement


def test_some_agree_to_the_bit_and_the_others_to_rounding(pytestconfig: pytest.Config) -> None:
    name = pytestconfig.getoption("--backend")
    name = {"jax": "optax"}.get(name, name)
    if name not in agreement.CLIPS:
        pytest.skip("NumPy has no clip of its own")
    identical, furthest = agreement.compared(name, 40)
    assert 4 <= identical < 40
    assert 0 < furthest <= 16
