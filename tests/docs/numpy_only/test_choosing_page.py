"""The pages on the monitor and on limits: their blocks run in order, and print the output on the page.

``PYTHONPATH=tests:tests/support python tests/docs/numpy_only/test_choosing_page.py`` writes the current output into the pages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pytest
from pages import BLOCK, DOCS

PAGES = ["choosing.md", "limits.md", "monitor.md"]


def gradients_of_a_run() -> Iterator[list[Any]]:
    rng = np.random.default_rng(0)
    for step in range(1000):
        size = rng.lognormal(sigma=0.5) * (20.0 if step % 100 == 99 else 1.0)
        yield [np.array([1.2 * size, 1.6 * size])]


def run(page: str) -> str:
    """Return the page with the current output of its blocks."""
    return pages.run((DOCS / page).read_text(encoding="utf-8"), page, {"gradients_of_a_run": gradients_of_a_run})


@pytest.mark.parametrize("page", PAGES)
def test_the_page_says_what_its_blocks_print(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(page) == (DOCS / page).read_text(encoding="utf-8")


def test_the_blocks_are_found() -> None:
    assert all(len(BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))) > 1 for page in PAGES)


if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        (DOCS / name).write_text(run(name), encoding="utf-8")
