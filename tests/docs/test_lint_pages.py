"""The linter's pages whose programs use this run's framework."""

from __future__ import annotations

import pytest
from lint.lint_pages import check, of

pytestmark = pytest.mark.needs("trains")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("code", of(metafunc.config.getoption("--backend")))


def test_the_programs_of_a_page_do_what_it_says(code: str) -> None:
    check(code)
