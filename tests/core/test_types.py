"""The values of the public functions have the types that a type checker is told: the checkers' own tests share the table."""

from __future__ import annotations

import pytest
from all_only import revealed
from frameworks.base import Framework


@pytest.mark.filterwarnings("ignore")
def test_each_value_is_of_its_type(backend: Framework, capsys: pytest.CaptureFixture[str]) -> None:
    assert revealed.run(backend.name) == 0, capsys.readouterr().out
