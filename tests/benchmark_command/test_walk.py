"""One clip walks through no more of gradclip than it did."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.walk import CEILINGS, WALKS, counted, summed

if TYPE_CHECKING:
    from frameworks.base import Framework


# Keras warns itself
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the ceilings are for Python 3.11: later ones call other functions")
def test_a_clip_walks_no_further_than_its_ceiling(backend: Framework) -> None:
    name = "keras" if backend.name == "tensorflow" else backend.name
    walk, most = summed(counted(WALKS[name]())), CEILINGS[name]
    assert walk.calls <= most.calls
    assert walk.functions <= most.functions
    assert walk.files <= most.files
    assert walk.calls > walk.functions > walk.files > 5  # the counter counts
