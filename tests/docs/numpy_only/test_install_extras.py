"""A page that shows a command has the install line with what the command needs."""

from __future__ import annotations

import re

import pages
import pytest

#: a command or an option of one -> the extra
NEEDS = {"migrate": "migrate", "conformance": "conformance", "demo": "demo", "--picture": "monitor", "--plot": "monitor"}
SHOWN = sorted([*pages.DOCS.glob("*.md"), pages.DOCS / "lint" / "README.md", pages.ROOT / "README.md"])


def lacking(text: str) -> set[str]:
    """Return what the page's commands need and none of its install lines has."""
    extras = {name for found in re.findall(r"pip install \S*\[([\w,]+)\]", text) for name in found.split(",")}
    words = {word for line in re.findall(r"^(?:    |\$ )gradclip (.*)", text, re.MULTILINE) for word in line.split()}
    return set() if extras & {"tools", "all"} else {NEEDS[word] for word in words & NEEDS.keys()} - extras


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_the_page_installs_what_its_commands_need(page: pages.Path) -> None:
    assert lacking(page.read_text(encoding="utf-8")) == set()


def test_a_missing_extra_is_found() -> None:
    text = "    pip install 'gradclip[jax,migrate]'\n    gradclip migrate src\n$ gradclip choose x --picture y\n"
    assert lacking(text) == {"monitor"}
    assert lacking(text.replace("jax,migrate", "jax,tools")) == set()
