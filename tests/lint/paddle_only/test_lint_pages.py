"""The linter's pages whose programs use this framework."""

from __future__ import annotations

import pytest
from lint.lint_pages import check, of


@pytest.mark.parametrize("code", of("paddle"))
def test_the_programs_of_a_page_do_what_it_says(code: str) -> None:
    check(code)
