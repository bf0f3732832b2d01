"""What gradclip says of an optimizer and a small limit is what its steps do."""

from __future__ import annotations

import functools
import re

import pages
import pytest
from step_lengths import OPTIMIZERS, ratio

from gradclip.steps.advice.optimizers import is_scale_invariant

ROW = re.compile(r"^\| `(.+?)` \| (\d\.\d\d) \|$", re.MULTILINE)
makers = functools.cache(lambda framework: OPTIMIZERS[framework]() if framework in OPTIMIZERS else {})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", makers(metafunc.config.getoption("--backend")))


def test_a_small_limit_shortens_the_steps_of_those_that_it_is_said_to(name: str, pytestconfig: pytest.Config) -> None:
    """Each gradient is cut to less than a tenth."""
    shorter = ratio(makers(pytestconfig.getoption("--backend"))[name])
    assert not 0.1 < shorter < 0.4, "neither one nor the other"
    assert is_scale_invariant(name) is (shorter > 0.1), shorter


def test_the_table_of_the_page(pytestconfig: pytest.Config) -> None:
    shown = dict(ROW.findall((pages.DOCS / "choosing.md").read_text(encoding="utf-8")))
    assert len(shown) > 5
    if pytestconfig.getoption("--backend") == "torch":
        assert shown == {name: f"{ratio(makers('torch')[name]):.2f}" for name in shown}
