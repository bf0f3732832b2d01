"""The suite on other packages' clips: before a release, with the packages installed (``tox -e third-parties``)."""

from __future__ import annotations

import json

import pytest
from conformance.third_parties.clips import CLIPS, Clip
from conformance.third_parties.release.record import found
from conformance.third_parties.table import FOUND

RECORDED = json.loads(FOUND.read_text(encoding="utf-8"))["clips"]


@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: clip.name)
def test_the_suite_finds_what_is_written_down(clip: Clip) -> None:
    assert found(clip) == RECORDED[clip.name]


def test_nothing_is_written_down_of_what_is_not_run() -> None:
    assert list(RECORDED) == [clip.name for clip in CLIPS]
