"""docs/start.md: each framework's section runs and prints its output; also the imports of docs/slots.md.

``PYTHONPATH=tests:tests/support python tests/docs/test_start_page.py torch``
writes the current output of a framework's section into the page.
"""

from __future__ import annotations

import re
import sys

import pages
import pytest

PAGE = pages.DOCS / "start.md"
TITLES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "paddle": "Paddle", "jax": "JAX", "numpy": "NumPy", "keras": "Keras"}


def test_the_section_prints_what_it_says(pytestconfig: pytest.Config) -> None:
    text = pages.section(PAGE, TITLES[pytestconfig.getoption("--backend")])
    assert text.count("```text\n") in (1, 2, 3)
    assert pages.run(text, "docs/start.md", {}) == text


def test_every_section_is_a_framework_s() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"\n## {title}\n" in text for title in TITLES.values())
    assert text.count("\n## ") == len(TITLES) + 1  # one more: the next steps


def test_the_import_of_the_slot(pytestconfig: pytest.Config) -> None:
    rows = re.findall(r"^\| (\w+)[ 3]* \| .*\| `(from .*)` \|$", (pages.DOCS / "slots.md").read_text("utf-8"), re.MULTILINE)
    imports = dict(rows)
    assert imports.keys() == {"Paddle", "JAX", "PyTorch", "Keras"}
    title = TITLES[pytestconfig.getoption("--backend")]
    assert (title in imports) == (title not in ("NumPy", "TensorFlow"))  # these two have no slot
    if title in imports:
        exec(imports[title])


if __name__ == "__main__":
    before = pages.section(PAGE, TITLES[sys.argv[1]])
    PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(before, pages.run(before, "docs/start.md", {})), encoding="utf-8")
