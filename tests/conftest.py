"""``pytest --backend torch``: the tests run on one framework a process, numpy unless said."""

from __future__ import annotations

import importlib

import pytest
from frameworks.base import Framework


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", default="numpy", help="the framework whose tensors the tests use")


def load(config: pytest.Config) -> Framework:
    return importlib.import_module(f"frameworks.{config.getoption('--backend')}").framework


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Framework:
    """The framework that this run is about."""
    return load(request.config)
