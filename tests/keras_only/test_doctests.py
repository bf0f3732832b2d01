"""The examples in the Keras optimizer's docstrings run and print the documented output."""

from __future__ import annotations

import doctest

import gradclip.backends.keras


def test_the_examples() -> None:
    results = doctest.testmod(gradclip.backends.keras)
    assert results.attempted > 0
    assert results.failed == 0
