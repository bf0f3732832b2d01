"""What gradclip says of an optimizer of Keras and a small limit is what its steps do."""

from __future__ import annotations

import pytest
from steps.test_scale_invariance import (
    pytest_generate_tests,
    test_a_small_limit_shortens_the_steps_of_those_that_it_is_said_to,
)

__all__ = ["pytest_generate_tests", "test_a_small_limit_shortens_the_steps_of_those_that_it_is_said_to"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
    pytest.mark.drawn(99, tensorflow=1, jax=1),  # Keras computes the steps alike on all: those on torch take a twentieth
]
