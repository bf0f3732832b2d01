"""The suite on other packages' clips: before a release, with the packages installed (``tox -e third-parties``)."""

from __future__ import annotations

import json

import pytest
from conformance.third_parties.clips import Clip, clips_of
from conformance.third_parties.following import FOLLOWERS, Follower
from conformance.third_parties.release.record import followed, found, version_of
from conformance.third_parties.table import FOUND

RECORDED = json.loads(FOUND.read_text(encoding="utf-8"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "clip" in metafunc.fixturenames:
        clips = clips_of(metafunc.config.getoption("--backend"))
        metafunc.parametrize("clip", clips, ids=[clip.name for clip in clips])


@pytest.fixture
def framework(pytestconfig: pytest.Config) -> str:
    return str(pytestconfig.getoption("--backend"))


def test_the_suite_finds_what_is_written_down(clip: Clip, framework: str) -> None:
    assert found(clip, framework) == RECORDED["clips"][framework][clip.name]


def test_nothing_is_written_down_of_what_is_not_run(framework: str) -> None:
    assert list(RECORDED["clips"][framework]) == [clip.name for clip in clips_of(framework)]
    assert RECORDED["versions"][framework] == version_of(framework)


@pytest.mark.parametrize("follower", FOLLOWERS, ids=[one.name for one in FOLLOWERS])
def test_limits_that_follow_the_run_do_what_is_written_down(follower: Follower, framework: str) -> None:
    if framework == "torch":  # they are all of torch, and run once
        assert followed(follower) == RECORDED["following"][follower.name]
    assert list(RECORDED["following"]) == [one.name for one in FOLLOWERS]
