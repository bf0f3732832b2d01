"""The HTML report: its content, that it is safe and self-contained, and how Chromium renders it."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conformance import chromium
from conformance.sample_report import CHECKS, FILES, report, results, sample

from gradclip.conformance.load import Flag
from gradclip.conformance.report.html import page
from gradclip.conformance.report.view import MARKS, view
from gradclip.conformance.result import STATUSES, Report, Result

VOID = {"meta", "br", "wbr", "link", "img", "hr"}
PHONE, DESKTOP = 390, 1280  #: pixels


class Document(HTMLParser):
    """Collects the tags of a page; they must be closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []  #: the text of each td
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1] += data

    def values(self, tag: str, name: str) -> list[str]:
        return [found for seen, attributes in self.tags if seen == tag and (found := attributes.get(name)) is not None]


@pytest.fixture(scope="module")
def html() -> str:
    return page(sample())


@pytest.fixture(scope="module")
def document(html: str) -> Document:
    return Document(html)


def crowded() -> Report:
    """Return a report of many targets, some with long names; everything passes."""
    given = report()
    names = [f"a target of a long name, number {i}" for i in range(8)]
    operations = [*given.vector_versions, *(f"tensorflow.operation_{i}" for i in range(14))]
    cases = [(operation, f"{operation}/K{i}") for operation in operations for i in range(90)]
    entry = next(iter(given.targets.values()))
    found = [Result(name, operation, case, "vector", "pass") for name in names for operation, case in cases]
    return dataclasses.replace(given, targets=dict.fromkeys(names, entry), results=[*found, *results()])


# ---- its content --------------------------------------------------------------------------------------------------------


def test_each_cell_says_its_counts_with_a_sign_and_words(document: Document) -> None:
    cells = [" ".join(cell.split()) for cell in document.cells]
    assert cells == [
        *("✓ 5 pass", "✗ 4 fail 1 pass", "– 2 unclaimed"),
        *("✓ 1 pass", "not run", "! 1 unexpected 1 expected"),
        *("– 1 unclaimed", "✗ 1 fail", "not run"),
    ]


def test_every_cell_opens_to_a_section_and_every_link_in_the_page_leads_somewhere(document: Document) -> None:
    names = [attributes["id"] for _, attributes in document.tags if "id" in attributes]
    assert len(names) == len(set(names))
    links = [link for link in document.values("a", "href") if link.startswith("#")]
    assert {link[1:] for link in links} <= set(names)
    assert set(document.values("section", "id")) == {link[1:] for link in links if link.startswith("#cell-")}
    assert len(document.values("section", "id")) == len(sample().cells)


def test_a_failure_says_what_was_called_what_came_and_what_it_does_to_training(html: str) -> None:
    for text in (
        "torch.clip_grad_norm_([[3, inf] float32, None], max_norm=inf)",
        "[3, inf], None, norm inf (float32)",
        "[nan, nan], None, norm inf (float32)",
        "1.2e7 ulp",
        "Every gradient becomes NaN with the first step",
        '<a href="https://github.com/tensorflow/tensorflow/issues/109146"',
        "did not end within 5 seconds",
        "Two runs that register the same layers in another order part.",
    ):
        assert text in html


def test_the_header_says_what_ran(html: str) -> None:
    for text in ("suite 1.0.0", "vectors 1.0.0 (optax.clip 1.1.0)", "torch 2.13.0, cpu, 1.2 s", "does not conform"):
        assert text in html


def test_what_is_said_for_a_flag_is_said_once_for_all_its_cases(html: str) -> None:
    assert html.count("A healthy gradient is taken for an infinite one") == 1
    assert html.count("squares that overflow") == 2


def test_a_large_report_is_a_page_of_moderate_size() -> None:
    assert len(crowded().results) > 12_000
    assert len(page(view(crowded(), FILES, CHECKS))) < 250_000


def test_the_page_opens_on_what_failed(html: str, document: Document) -> None:
    assert html.index("What failed") < html.index("Operations and targets")
    links = document.values("a", "href")
    assert links[:6] == ["#cell-1-2", "#cell-1-2", "#cell-1-2", "#cell-1-2", "#cell-3-2", "#cell-2-3"]
    opening = html[html.index("What failed") : html.index("Operations and targets")]
    assert opening.index("not finite") < opening.index("raised") < opening.index("Gone")
    assert "gave <code>[nan, nan], None, norm inf (float32)</code>, not <code>[3, inf]" in opening


def one_target(*statuses: str) -> Report:
    """Return a report of one target whose first results have these statuses in turn."""
    cases = [(operation, f"{operation}/K{i}") for operation in report().vector_versions for i in range(30)]
    found = [Result("mine", *case, "check", statuses[i % len(statuses)], message="why") for i, case in enumerate(cases)]
    return dataclasses.replace(report(), targets={"mine": {}}, results=found)


@pytest.mark.parametrize("statuses", [("pass", "fail"), ("pass", "expected"), ("pass",)], ids=str)
def test_in_chromium_the_first_screen_of_one_target_is_full(tmp_path: Path, statuses: tuple[str, ...]) -> None:
    shown = page(view(one_target(*statuses), FILES, CHECKS))
    found = chromium.measure(shown, tmp_path)
    assert len(found["sections"]) == len(report().vector_versions)  # all sections are open
    assert found["bottom"] >= 720
    assert ("What failed" in shown) == ("fail" in statuses)
    assert ("What is declared to fail" in shown) == ("expected" in statuses)
    assert ("more: <a href" in shown) == (len(statuses) > 1)


# ---- safe, and self-contained -------------------------------------------------------------------------------------------


def test_everything_is_escaped(html: str) -> None:
    assert "<script" not in html
    assert html.count("&lt;script&gt;document.title = ") == 4
    evil = '"><img src=x onerror=alert(1)>'
    renamed = [dataclasses.replace(result, target=evil, operation=evil, case=f"{evil}/{evil}") for result in results()]
    other = Report(evil, {evil: evil}, {evil: {"versions": {evil: evil}, "device": evil, "seconds": 1.0}}, renamed)
    assert "<img" not in page(view(other, [], {}))


def test_only_web_pages_are_linked() -> None:
    bad = "javascript:alert(1)"
    file = dataclasses.replace(FILES[0], documentation=bad, flags={"InfiniteLimit": Flag("", "", (bad,))})
    found = Document(html := page(view(report(), [file], {})))
    assert bad in html
    assert bad not in found.values("a", "href")


def test_the_page_asks_for_nothing(html: str, document: Document) -> None:
    assert {tag for tag, attributes in document.tags if "src" in attributes or "srcset" in attributes} == set()
    assert {tag for tag, attributes in document.tags if "href" in attributes} == {"a"}
    assert not re.search(r"url\(|@import|<link|<script|<iframe|<object", html)
    assert "default-src 'none'" in html


# ---- colours ------------------------------------------------------------------------------------------------------------


def _light(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: str, b: str) -> float:
    """Return the contrast ratio, as WCAG 2 defines it.

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    darker, lighter = sorted((_light(a), _light(b)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_contrast_of_known_colours() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_colour_of_text_stands_out_from_every_ground_it_is_on(html: str, scheme: int) -> None:
    palettes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\}", html, re.DOTALL)
    ]
    assert len(palettes) == 2
    colours = palettes[scheme]
    grounds = [
        colours[name] for name in ("ground", "panel", *(f"{status}-ground" for status in STATUSES if status != "unexpected"))
    ]
    for ground in grounds:
        assert min(contrast(colours[name], ground) for name in ("text", "soft", "link")) >= 4.5
    for status in ("pass", "fail", "expected", "unclaimed"):
        assert min(contrast(colours[status], colours[ground]) for ground in ("ground", "panel", f"{status}-ground")) >= 4.5


def test_no_status_is_told_by_colour_alone() -> None:
    assert MARKS.keys() == STATUSES.keys()
    assert len(set(MARKS.values())) == len(MARKS)


# ---- in Chromium --------------------------------------------------------------------------------------------------------


def test_chromium_shows_the_table_without_scripts(html: str, tmp_path: Path) -> None:
    found = chromium.measure(html, tmp_path)
    assert [cell.split() for cell in found["cells"]] == [cell.split() for cell in Document(html).cells]
    assert found["title"] == "Gradient clipping: conformance"


@pytest.mark.parametrize("scheme", [chromium.LIGHT, chromium.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_in_chromium_nothing_leaves_the_page_and_all_of_it_can_be_read(tmp_path: Path, width: int, scheme: str) -> None:
    crowd = view(crowded(), FILES, CHECKS)
    found = chromium.measure(page(crowd), tmp_path, scheme, width=width, fragment="all")
    assert found["width"] == width
    assert found["page"] <= found["width"]
    assert found["outside"] == []
    assert found["table"] > found["box"], "too few targets to see the table scroll in its own box"
    assert len(found["sections"]) == len(crowd.cells)
    assert len(found["texts"]) > 500
    assert [text for text in found["texts"] if text["size"] < 12.8] == []
    assert [text for text in found["texts"] if text["contrast"] < 4.5] == []
    assert (found["ground"] == "rgb(255, 255, 255)") == (scheme == chromium.LIGHT)


@pytest.mark.parametrize(
    ("fragment", "sections"),
    [("", []), ("cell-1-2", ["cell-1-2"]), ("failures", ["cell-1-2", "cell-2-3", "cell-3-2"])],
)
def test_in_chromium_a_cell_opens_to_its_cases(html: str, tmp_path: Path, fragment: str, sections: list[str]) -> None:
    assert chromium.measure(html, tmp_path, fragment=fragment)["sections"] == sections


def test_without_chromium_the_tests_say_so_and_fail_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Chromium is missing"):
        chromium.installed()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        chromium.installed()
