"""The Chinese pages show the same code, the same output, the same numbers and the same links as the English ones."""

from __future__ import annotations

import ast
import posixpath
import re
import textwrap
from collections import Counter

import pages
import pytest
from pages import ROOT

ALONE = "docs/zh/articles.md"  # this page has no English version; tests/docs/test_articles_page.py runs it
CHINESE = {"README.md": "README.zh.md"} | {
    f"docs/{name}": f"docs/zh/{name}"
    for name in sorted(path.relative_to(pages.DOCS / "zh").as_posix() for path in pages.DOCS.glob("zh/**/*.md"))
    if name != "articles.md"
}
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$|((?:^    [^\n]*\n)+)", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r'\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"')
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e\d+)?")


def blocks(text: str) -> list[str]:
    """Return the code in order: Python without comments and layout, commands without comments, output unchanged."""
    found = []
    for _, language, code, indented in BLOCK.findall(text):
        if language == "python":
            found.append(ast.unparse(ast.parse(textwrap.dedent(code))))
        elif indented:
            found.append(re.sub(r" +#.*", "", textwrap.dedent(indented)))
        else:
            found.append(code)
    return found


def prose(text: str) -> str:
    return BLOCK.sub("", text)


def spans(text: str) -> Counter[str]:
    """Return the inline code, each on one line."""
    return Counter(re.sub(r"\s+", " ", span) for span in SPAN.findall(prose(text)))


def numbers(text: str) -> set[str]:
    """Return the numbers in sentences and tables, in the units that both languages use."""
    bare = re.sub(r"\]\([^)]*\)", "", SPAN.sub("", prose(text)))
    return set(NUMBER.findall(re.sub(r"(\d+) million", lambda found: f"{int(found[1]) * 100}", bare)))


def links(page: str, text: str) -> Counter[str]:
    """Return the targets of the links, with the English page for a Chinese one, and without the fragments."""
    english = {there: here for here, there in CHINESE.items()}
    found = Counter[str]()
    for link in (a or b for a, b in LINK.findall(SPAN.sub("", prose(text)))):
        target = link
        if not link.startswith("http"):
            target = posixpath.normpath(
                posixpath.join(posixpath.dirname(page), link.partition("#")[0] or posixpath.basename(page))
            )
        found[english.get(target, target)] += 1
    return found


def broken(text: str) -> list[str]:
    """Return line breaks beside Chinese characters: a browser would show them as spaces."""
    wide = "[\u3001-\u301f\u4e00-\u9fff\uff01-\uff5e]"
    return re.findall(rf"^(?![#|]).*{wide}\n *(?!\d+\. )[\w\[（“].*", prose(text), re.MULTILINE)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", CHINESE)
def test_the_code_is_the_same(page: str) -> None:
    assert blocks(read(CHINESE[page])) == blocks(read(page))


@pytest.mark.parametrize("page", CHINESE)
def test_the_words_in_code_are_the_same(page: str) -> None:
    assert spans(read(CHINESE[page])) == spans(read(page))


@pytest.mark.parametrize("page", CHINESE)
def test_the_numbers_are_the_same(page: str) -> None:
    here, there = read(page), read(CHINESE[page])
    assert numbers(here) - numbers(there) == set(), "the Chinese page lacks them"
    assert numbers(there) - numbers(here) - set(NUMBER.findall(" ".join(blocks(here)))) == set(), "the English page lacks them"


@pytest.mark.parametrize("page", CHINESE)
def test_the_links_are_the_same(page: str) -> None:
    assert links(CHINESE[page], read(CHINESE[page])) == links(page, read(page))


@pytest.mark.parametrize("page", [*CHINESE.values(), ALONE])
def test_the_links_lead_to_chinese_pages_where_there_are_any(page: str) -> None:
    targets = (a or b for a, b in LINK.findall(SPAN.sub("", prose(read(page)))) if not (a or b).startswith("http"))
    led = {posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0])) for target in targets}
    assert led & CHINESE.keys() <= ({"README.md"} if page == "README.zh.md" else set())


@pytest.mark.parametrize("page", [*CHINESE.values(), ALONE])
def test_no_line_breaks_within_chinese_sentences(page: str) -> None:
    assert broken(read(page)) == []
    assert broken("- 梯度\n  裁剪\n- 范数\n") == ["- 梯度\n  裁剪"]


def test_a_change_in_one_language_is_found() -> None:
    text = "One of 5 million is `g`, see [this](docs/start.md).\n\n    pip install x  # first\n\n```python\nf(1)  # y\n```\n"
    assert blocks(text) == ["pip install x\n", "f(1)"]
    assert blocks(text.replace("first", "第一").replace("# y", "# 否")) == blocks(text)
    assert blocks(text.replace("f(1)", "f(2)")) == ["pip install x\n", "f(2)"]
    assert numbers(text) == numbers("`g` 是 500 万分之一。") == {"500"}
    assert spans(text) == {"g": 1}
    assert links("README.md", text) == links("README.zh.md", "[这里](docs/zh/start.md)") == {"docs/start.md": 1}
