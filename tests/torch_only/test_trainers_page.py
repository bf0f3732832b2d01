"""docs/trainers.md: each recipe trains, and prints the output on the page. `tox -e trainers` has the libraries."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from pages import DOCS, run

PAGE = DOCS / "trainers.md"
NEEDS = {
    "Lightning": "lightning",
    "Hugging Face Trainer": "transformers",
    "Accelerate": "accelerate",
    "Flax NNX": "flax",
}


def test_every_recipe_is_tried() -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    assert {section.partition("\n")[0] for section in sections if "```python" in section} == NEEDS.keys()


@pytest.mark.slow("a changed trainer")
@pytest.mark.filterwarnings("ignore")  # warnings of the trainers themselves
@pytest.mark.parametrize("title", NEEDS)
def test_a_recipe_trains_and_prints_what_the_page_says(title: str) -> None:
    if importlib.util.find_spec(NEEDS[title]) is None:
        pytest.skip(f"{NEEDS[title]} is in the environment of `tox -e trainers`")
    head, *sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    (section,) = (section for section in sections if section.startswith(f"{title}\n"))
    names: dict[str, Any] = {}
    run(head, PAGE.name, names)
    assert run(section, PAGE.name, names) == section
