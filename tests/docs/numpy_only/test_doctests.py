"""The examples in the docstrings, in the README and in docs/dialects.md run and print the documented output."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pages
import pytest
from oracle import ulps

import gradclip

FOLDER = Path(gradclip.__file__).parent
SOURCES = [
    path.relative_to(FOLDER).with_suffix("") for path in sorted(FOLDER.rglob("*.py")) if ">>>" in path.read_text("utf-8")
]
MODULES = [".".join(("gradclip", *path.parts)).removesuffix(".__init__") for path in SOURCES if path.parts[0] != "backends"]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_the_core(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module.removesuffix(".__init__")))
    assert found.failed == 0
    assert found.attempted > 0


@pytest.mark.parametrize("page", ["README.md", "docs/dialects.md"])
def test_the_examples_of_the_page(page: str) -> None:
    """Run each block of Python in order; NumPy's arrays stand for undefined names."""
    text = (pages.ROOT / page).read_text("utf-8")
    held = [np.array([[3.0, 4.0]])]
    model = SimpleNamespace(parameters=lambda: held, named_parameters=lambda: [("decoder.weight", held[0])])
    names = {"model": model, "grads": [np.array([[6.0, 8.0], [0.0, 24.0]]), np.array([7.0])]}
    assert pages.run(text, page, names) == text
    assert np.linalg.norm(held) <= 1.0, "the gradients of the model were not clipped"
    if page == "README.md":
        assert names["norm"] > 5.0
        assert ulps(np.linalg.norm(names["grads"]), 5.0, "float64") <= 4
    else:
        norm = sum(np.abs(g).sum() for g in names["grads"])
        assert names["norm"] == norm
        assert ulps(sum(np.abs(g).sum() for g in names["result"].grads), norm / (norm + 1e-6), "float64") <= 4


def test_the_examples_are_found() -> None:
    assert doctest.testmod(importlib.import_module("gradclip.core.clip")).attempted > 10
    assert len(MODULES) > 60
