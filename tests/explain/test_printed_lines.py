"""The lines that ``gradclip explain`` prints for a framework run there, and clip as the explained call."""

from __future__ import annotations

import importlib

import pytest
from explain.printed.lines import Printed, check, lines

pytestmark = pytest.mark.needs("trains")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "printed" in metafunc.fixturenames:
        metafunc.parametrize("printed", lines(metafunc.config.getoption("--backend")), ids=str)


def test_a_printed_line_runs(printed: Printed, pytestconfig: pytest.Config) -> None:
    check(printed, importlib.import_module(f"explain.printed.{pytestconfig.getoption('--backend')}").run)


def test_there_are_lines_of_natives_and_of_gradclip(pytestconfig: pytest.Config) -> None:
    framework = pytestconfig.getoption("--backend")
    found = lines(framework)
    ours = [printed for printed in found if "gradclip." in printed.line]
    assert len(ours) >= 20
    assert len(found) - len(ours) >= (10 if framework == "keras" else 18)
