"""Each framework's natives against gradclip: on every recorded case, and in behaviours that the cases omit."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from natives.behaviours import Behaviour, never_replayed, replay
from natives.replay import Native, check, needs_64_bits
from vectors.cases import Case

pytestmark = pytest.mark.needs("trains")


def natives(config: pytest.Config) -> ModuleType:
    return importlib.import_module(f"natives.measured.{config.getoption('--backend')}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    has_natives = metafunc.config.getoption("--backend") != "numpy"
    if "case" in metafunc.fixturenames:
        metafunc.parametrize(("native", "case"), natives(metafunc.config).CALLS if has_natives else [], ids=str)
    elif "behaviour" in metafunc.fixturenames:
        metafunc.parametrize("behaviour", natives(metafunc.config).BEHAVIOURS if has_natives else [], ids=str)


@pytest.fixture
def of(pytestconfig: pytest.Config) -> ModuleType:
    """The natives of this run."""
    return natives(pytestconfig)


@pytest.mark.drawn(1000, jax=60, keras=40)
def test_case(of: ModuleType, native: Native, case: Case) -> None:
    with of.framework.bits(is_wide=needs_64_bits(case)):
        check(of.framework, native, case)


def test_behaviour(of: ModuleType, behaviour: Behaviour) -> None:
    with of.framework.bits(is_wide=False):  # as in the recording
        replay(of.framework, behaviour, of.THEIRS, of.OURS)


def test_departures_name_what_is_replayed(of: ModuleType) -> None:
    assert not never_replayed(of.PREFIX, of.BEHAVIOURS)
