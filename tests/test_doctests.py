"""The examples in the docstrings and in the README run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import gradclip
from gradclip import dialects, dropins

PACKAGES = (gradclip, dialects, dropins)
CORE = [module.name for package in PACKAGES for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("module", [name for name in CORE if name not in ("gradclip.__main__", "gradclip.backends")])
def test_the_examples_of_the_core(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_the_examples_of_the_backend(pytestconfig: pytest.Config) -> None:
    module = importlib.import_module(f"gradclip.backends.{pytestconfig.getoption('--backend')}")
    assert doctest.testmod(module).failed == 0


def test_the_examples_of_the_readme() -> None:
    assert doctest.testfile(str(README), module_relative=False, encoding="utf-8").failed == 0


def test_the_examples_are_found() -> None:
    assert doctest.testmod(importlib.import_module("gradclip.clip")).attempted > 10
