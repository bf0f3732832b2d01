"""The Keras section of docs/explodes.md, on PyTorch, as its install line says."""

from __future__ import annotations

import pytest
from docs.test_explodes_page import test_the_section_prints_what_it_says

__all__ = ["test_the_section_prints_what_it_says"]

pytest.importorskip("torch")
