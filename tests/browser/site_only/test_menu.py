"""The site's menu has an entry for each page of ``nav`` in mkdocs.yml, also for a folder's README."""

from __future__ import annotations

import re

from browser.server import SITE
from pages import ROOT

#: a title, and its page
ENTRY = re.compile(r"^ +- ([^:\n]+): (\S+)\.md$", re.MULTILINE)


def test_each_page_has_an_entry_in_the_menu() -> None:
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    entries = [(title, page.replace("README", "index")) for title, page in ENTRY.findall(nav)]
    assert len(entries) == nav.count(".md") > 40
    menu = (SITE / "glossary.html").read_text("utf-8").partition('<nav class="md-nav md-nav--primary')[2].partition("<main")[0]
    titles = dict(
        re.findall(r'<a href="([^"]+)\.html" class="md-nav__link">.*?<span class="md-ellipsis">\s*(.*?)\s*<', menu, re.DOTALL)
    )
    missing = [(title, page) for title, page in entries if page != "glossary" and titles.get(page) != title]
    assert missing == []
