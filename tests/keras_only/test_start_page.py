"""The Keras section of docs/start.md, on the framework that Keras runs on here."""

from __future__ import annotations

import pytest
from docs.test_start_page import test_the_import_of_the_slot, test_the_section_prints_what_it_says

__all__ = ["test_the_import_of_the_slot", "test_the_section_prints_what_it_says"]

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
