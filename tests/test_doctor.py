"""``gradclip doctor`` on programs of each framework: it finds each planted mistake in its line, and blames no right program."""

from __future__ import annotations

import pytest
import watched

pytestmark = pytest.mark.needs("trains")
#: framework -> the least numbers of right programs and of programs with mistakes
LEAST = {"torch": (6, 16), "tensorflow": (5, 7), "paddle": (5, 8), "jax": (4, 3), "keras": (1, 1)}

SEVERAL = ("right_in_backward", "right_two_optimizers")  #: programs in which a batch has several steps


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", watched.programs(metafunc.config.getoption("--backend")))


@pytest.fixture
def framework(pytestconfig: pytest.Config) -> str:
    return str(pytestconfig.getoption("--backend"))


def test_there_are_programs_of_both_kinds(framework: str) -> None:
    names = watched.programs(framework)
    right = [name for name in names if name.startswith("right_")]
    least_right, least_wrong = LEAST[framework]
    assert len(right) >= least_right
    assert len(names) - len(right) >= least_wrong
    assert all(bool(watched.marked(watched.path_of(framework, name))) == (name not in right) for name in names)


def test_the_findings(framework: str, name: str) -> None:
    path = watched.path_of(framework, name)
    told = watched.told(path)
    assert told.report["ended"] in ("stopped", "ended"), told.report["said"]
    assert told.found == watched.marked(path), told.report["findings"]
    assert told.status == int(bool(told.found))
    assert told.report["steps"] == 6 or (told.report["steps"] > 6 and name in SEVERAL)
