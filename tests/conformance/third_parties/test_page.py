"""The page about other packages' clips matches the suite's results."""

from __future__ import annotations

from conformance.third_parties.table import PAGE, markdown


def test_the_page_is_made_of_what_was_found() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown()
