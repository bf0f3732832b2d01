"""The doctor looks at all objects that Python's collector knows: those of the tests before are not the script's, and many."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _objects_of_other_tests() -> None:
    gc.collect()
    gc.freeze()
