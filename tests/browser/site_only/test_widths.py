"""Every page of the built site fits phones, tablets and desks: nothing is cut off, and no page scrolls sideways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from browser.page import Page
from browser.server import SITE, Server, served

WIDTHS = (360, 768, 1280, 1600)
#: what ends right of the window, unless it is in a box that scrolls by itself: a table, or a wide formula
OUTSIDE = """(() => {
  const scrolls = one => one && (/auto|scroll/.test(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
  return [...document.querySelectorAll('.md-content *, .md-tabs__link, .md-header *')]
    .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1 && !scrolls(one))
    .map(one => `${one.tagName} ${(one.textContent || '').trim().slice(0, 40)}`);
})()"""
#: blocks of code whose lines end outside of the block
CUT = "[...document.querySelectorAll('pre > code')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
#: names in tables that go on in the next line
BROKEN = """[...document.querySelectorAll('table code')].filter(one => one.checkVisibility()).flatMap(one => {
  const nodes = document.createTreeWalker(one, NodeFilter.SHOW_TEXT), range = document.createRange(), found = [];
  while (nodes.nextNode()) for (const name of nodes.currentNode.data.matchAll(/\\w+/g)) {
    range.setStart(nodes.currentNode, name.index);
    range.setEnd(nodes.currentNode, name.index + name[0].length);
    if (range.getClientRects().length > 1) found.push(name[0]);
  }
  return found;
})"""
#: without motion an element is at its place at once
STILL = """document.head.insertAdjacentHTML(
  'beforeend', '<style>* {transition: none !important; animation: none !important}</style>')"""
#: after the next frame, when scripts have answered the new width
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as server:
        yield server


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Page(tmp_path_factory.mktemp("chromium")) as page:
        page("Network.setBlockedURLs", urls=["*/search/*"])  # the index takes longer than the rest of a page
        yield page


@pytest.fixture(scope="module")
def wrong(page: Page, server: Server) -> dict[int, dict[str, Any]]:
    """What is wrong on each page, by the width of the window.

    A page is laid out for the narrowest, where what is too wide shows first, and for one of the others by turns. It is
    opened in the width of the page before, which it is laid out for first.
    """
    names = [path.relative_to(SITE).as_posix() for path in sorted(SITE.rglob("*.html"))]
    assert len(names) > 40
    wrong: dict[int, dict[str, Any]] = {width: {} for width in WIDTHS}
    for i, name in enumerate(names):
        opened(page, f"{server.address}{name}")
        both = (WIDTHS[0], WIDTHS[1 + i // 2 % (len(WIDTHS) - 1)])
        for width in both[:: -1 if i % 2 else 1]:
            if (found := laid_out(page, width)) != [width, [], 0, []]:
                wrong[width][name] = found
    return wrong


def opened(page: Page, address: str) -> None:
    page.open(address)
    page.value(STILL)


def laid_out(page: Page, width: int) -> Any:
    """How wide the page is in a window of this width, what is outside of it, how many blocks are cut, and broken names."""
    page("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    return page.value(f"{DRAWN}.then(() => [document.documentElement.scrollWidth, {OUTSIDE}, {CUT}, {BROKEN}])")


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_cut_or_scrolls_sideways(wrong: dict[int, dict[str, Any]], width: int) -> None:
    assert wrong[width] == {}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_wide_element_is_found(page: Page, server: Server, width: int) -> None:
    opened(page, f"{server.address}index.html")
    assert laid_out(page, width) == [width, [], 0, []]
    page.value(f"document.querySelector('.md-content p').style.width = '{width + 140}px'")
    page.value("document.querySelector('pre > code').style.whiteSpace = 'pre'")
    page.value("document.querySelector('pre > code').append('x'.repeat(999))")
    code = "<table><td><code style='display: block; width: 3em; word-break: break-all'>clip_grad_norm_</code></table>"
    page.value(f"document.querySelector('.md-content h1').insertAdjacentHTML('afterend', {json.dumps(code)})")
    total, outside, cut, broken = laid_out(page, width)
    assert total > width
    assert outside != []
    assert cut > 0
    assert broken == ["clip_grad_norm_"]
