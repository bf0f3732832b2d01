"""The examples in the docstrings of the backend run and print the documented output."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from gradclip import backends


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
    assert name in ("numpy", "tensorflow") or any(result.attempted for result in found)  # those two have no functions for users
