"""Every page of the built site fits phones, tablets and desks: nothing is cut off, and no page scrolls sideways."""

from __future__ import annotations

from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as server:
        yield server


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Page(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_cut_or_scrolls_sideways(page: Page, server: Server, width: int) -> None:
    page("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    names = [path.relative_to(SITE).as_posix() for path in sorted(SITE.rglob("*.html"))]
    assert len(names) > 40
    wrong = {}
    for name in names:
        page.open(f"{server.address}{name}")
        found = page.value(f"[document.documentElement.scrollWidth, {OUTSIDE}, {CUT}]")
        if found != [width, [], 0]:
            wrong[name] = found
    assert wrong == {}


def test_a_wide_element_is_found(page: Page, server: Server) -> None:
    page("Emulation.setDeviceMetricsOverride", width=360, height=900, deviceScaleFactor=1, mobile=False)
    page.open(f"{server.address}index.html")
    page.value("document.querySelector('.md-content p').style.width = '500px'")
    assert page.value("document.documentElement.scrollWidth") > 360
    assert page.value(OUTSIDE) != []
    page.value("document.querySelector('pre > code').style.whiteSpace = 'pre'")
    assert page.value(CUT) > 0
