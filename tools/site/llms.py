"""The hook for ``llms.txt`` (https://llmstxt.org), which names the English pages, and ``llms-full.txt``, their whole text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

#: an address of a page -> its Markdown, with links between pages
_TEXTS: dict[str, str] = {}
#: the title of a section -> its pages; a page beside the sections is one of its own
_SECTIONS: dict[str, list[Any]] = {}
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def on_pre_build(**_: Any) -> None:
    """Forget the pages of an earlier build by ``mkdocs serve``."""
    _TEXTS.clear()


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> None:
    """Keep the text of an English page; the reference has none before its docstrings are rendered."""
    if not page.file.src_uri.startswith(("zh/", "source/", "reference/")):
        _TEXTS[page.url or "index.html"] = markdown


def on_nav(nav: Any, **_: Any) -> None:
    """Keep the sections, whose titles the pages of another language change."""
    _SECTIONS.clear()
    for item in nav:
        pages = item.children if item.is_section else [item]
        _SECTIONS[item.title] = [page for page in pages if page.is_page and not page.is_homepage]


def on_post_build(config: Any) -> None:
    """Write both files beside the site's first page."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    whole = [_TEXTS["index.html"]]
    for title, pages in _SECTIONS.items():
        found = [page for page in pages if page.url in _TEXTS]
        if found:
            lines += [f"## {title}", "", *(_line(page) for page in found), ""]
            whole += [_TEXTS[page.url] for page in found]
    site = Path(config.site_dir)
    (site / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(whole), encoding="utf-8")


def _line(page: Any) -> str:
    sentence = _first(_TEXTS[page.url])
    return f"- [{page.title}]({page.url}){sentence and ': '}{sentence}"


def _first(markdown: str) -> str:
    """The first sentence of a page, without links; "" if it has only tables and code.

    >>> _first("# A title\\n\\nA [clip](a.md) of\\na list. More.")
    'A clip of a list.'
    """
    paragraphs = (part for part in _FENCED.sub("", markdown).split("\n\n") if re.match(r"[\w`*]", part))
    text = " ".join(_LINK.sub(r"\1", next(paragraphs, "")).split())
    return re.split(r"(?<=[.:])\s", text)[0].removesuffix(":")
