"""docs/zh/articles.md: the examples of the articles run and print the output on the page.

``PYTHONPATH=tests:tests/support python tests/docs/test_articles_page.py torch``
writes the current output of a framework's sections.
"""

from __future__ import annotations

import sys

import pages
import pytest

PAGE = pages.DOCS / "zh" / "articles.md"
NUMPY = "p 范数"
TITLES = {
    "torch": ["PyTorch：四层 sigmoid 网络", "PyTorch：SimpleNet"],
    "tensorflow": ["TensorFlow：裁剪十个整数"],
    "paddle": ["Paddle：静态图里的 GradientClipByNorm"],
}


def titles(backend: str) -> list[str]:
    return [NUMPY, *TITLES.get(backend, [])]


@pytest.mark.filterwarnings("ignore:Tensor do not have 'place' interface:UserWarning")  # Paddle's append_backward warns
def test_the_sections_print_what_they_say(pytestconfig: pytest.Config) -> None:
    for title in titles(pytestconfig.getoption("--backend")):
        text = pages.section(PAGE, title)
        assert "```text\n" in text, title
        assert pages.run(text, "docs/zh/articles.md", {}) == text


def test_every_section_is_a_framework_s() -> None:
    known = [NUMPY, *(title for found in TITLES.values() for title in found)]
    found = [line.removeprefix("## ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    assert sorted(found) == sorted(known)


if __name__ == "__main__":
    for name in titles(sys.argv[1]):
        before = pages.section(PAGE, name)
        after = pages.run(before, "docs/zh/articles.md", {})
        PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
