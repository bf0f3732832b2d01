"""A backend does without each private name of its framework, as in releases that lack it."""

from __future__ import annotations

import json

import copies
import pytest
from frameworks.base import Framework
from launched import TESTS
from missing_names import names


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", names(metafunc.config.getoption("--backend")))


@pytest.fixture(scope="module")
def without(backend: Framework) -> dict[str, str]:
    """Return the failures without each of the names; a separate process loads the backend again for each."""
    done = copies.run(backend.name, str(TESTS / "support" / "missing_names.py"), backend.name, f"{backend.name}.__version__")
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.needs("trains")
def test_a_backend_does_without_each_private_name(without: dict[str, str], name: str) -> None:
    assert without[name] == ""


@pytest.mark.needs("trains")
def test_a_name_that_it_cannot_do_without_would_be_seen(backend: Framework, without: dict[str, str]) -> None:
    assert "AttributeError" in without[f"{backend.name}.__version__"]
