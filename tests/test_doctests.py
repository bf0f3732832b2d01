"""The examples in the docstrings and in the README run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from oracle import ulps

import gradclip
from gradclip import backends, commands, conformance, dialects, dropins, limits, monitor

PACKAGES = (gradclip, commands, conformance, dialects, dropins, limits, monitor)
CORE = [module.name for package in PACKAGES for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("module", [name for name in CORE if name not in ("gradclip.__main__", "gradclip.backends")])
def test_the_examples_of_the_core(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_the_examples_of_the_backend(pytestconfig: pytest.Config) -> None:
    name = pytestconfig.getoption("--backend")
    modules = [module.name for module in pkgutil.iter_modules(backends.__path__) if module.name.partition("_")[0] == name]
    assert name in modules
    made = [importlib.import_module(f"gradclip.backends.{module}") for module in modules]
    for package in [module for module in made if hasattr(module, "__path__")]:
        inside = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        made += [importlib.import_module(module.name) for module in inside]
    found = list(map(doctest.testmod, made))
    assert not any(result.failed for result in found)
    assert name in ("numpy", "tensorflow") or any(result.attempted for result in found)  # those two have no function for users


def test_the_examples_of_the_readme() -> None:
    """Each block of Python, one after the other, with NumPy's arrays for what they name and do not make."""
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    held = [np.array([[3.0, 4.0]])]
    rule = dialects.optax.clip_by_global_norm(1.0)
    model = SimpleNamespace(parameters=lambda: held, named_parameters=lambda: [("decoder.weight", held[0])])
    names = {"model": model, "grads": [np.array([[6.0, 8.0], [0.0, 24.0]]), np.array([7.0])], "rule": rule}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert np.linalg.norm(held) < 1.0, "the gradients of the model were not clipped"
    assert names["norm"] == gradclip.norm(names["grads"], rule)
    assert ulps(np.linalg.norm(np.concatenate([g.ravel() for g in names["result"].grads])), 1.0, "float64") <= 4


def test_the_examples_are_found() -> None:
    assert doctest.testmod(importlib.import_module("gradclip.clip")).attempted > 10
