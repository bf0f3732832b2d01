"""The pages keep their maximal length, their links work, their numbers come from the benchmarks; an editor shows plain text."""

from __future__ import annotations

import ast
import re
import shutil
import tomllib
from pathlib import Path

import dark
import numpy as np
import pages
import pytest
from sources import SOURCES

ROOT = pages.ROOT
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "README.md"])
CODE = re.compile(r"^( *)```.*?^\1```$|^    .*?$|`[^`\n]*`", re.MULTILINE | re.DOTALL)  # code has brackets that are not links


@pytest.mark.parametrize(("page", "most"), [("README.md", 700), ("CONTRIBUTING.md", 750)])
def test_the_page_is_short(page: str, most: int) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= most


def test_the_english_pages_say_a_thing_once() -> None:
    """Words are what has a letter; code and the output of commands count too."""
    english = [page for page in (ROOT / "docs").rglob("*.md") if "zh" not in page.parts]
    words = [word for page in english for word in page.read_text(encoding="utf-8").split() if re.search("[A-Za-z]", word)]
    assert 20_000 < len(words) <= 36_700


def test_what_the_writing_guide_replaces_is_written_nowhere() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("| before | after |\n| --- | --- |\n")[2]
    before = [cells(row)[0] for row in guide.splitlines()]
    assert len(before) == 20
    texts = {
        path: " ".join(path.read_text("utf-8").split())
        for path in [*PAGES, *SOURCES.values()]
        if path.name != "CONTRIBUTING.md"
    }
    assert [(path, words) for path, text in texts.items() for words in before if words in text] == []


@pytest.mark.parametrize(("page", "whole"), [("docs/index.md", "README.md"), ("docs/zh/index.md", "README.zh.md")])
def test_the_site_s_first_page_shows_lines_of_the_readme(page: str, whole: str) -> None:
    """Tests run the readme's blocks, so these lines are what the commands print."""
    blocks = re.findall(r"^```\w+\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    readme = (ROOT / whole).read_text("utf-8").splitlines()
    assert [line for block in blocks for line in block.splitlines() if line not in readme] == []


def anchors(page: Path) -> set[str]:
    """Return GitHub's anchors for a page's headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    broken = []
    for link in [link for link in links if not link.startswith(("http://", "https://", "mailto:"))]:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# Only this, one\n")
    (tmp_path / "a.md").write_text("[1](b.md#only-this-one) [2](b.md#other) [3](c.md) [4](#no) `[5](d.md)` [6](https://x.y)\n")
    assert broken_links(tmp_path / "a.md") == ["b.md#other", "c.md", "#no"]


def cells(line: str) -> list[str]:
    return [cell.strip(" *") for cell in line.split("|")[1:-1]]


def test_the_speeds_are_those_of_the_last_full_run() -> None:
    run = (ROOT / "benchmarks" / "README.md").read_text("utf-8").partition("\n| geometric means |")[2].partition("\n\n")[0]
    means = {row[0]: row[1:] for row in map(cells, run.splitlines()[2:])}
    page = (pages.DOCS / "accuracy.md").read_text("utf-8").partition("\n| | PyTorch")[2].partition("\n\n")[0].splitlines()
    columns = ["torch", "tensorflow", "jax", "paddle", "numpy", "all"]
    assert cells(page[2]) == ["eager", *(means[name][2] for name in columns)]
    assert cells(page[3]) == ["compiled", *(means[name][3] for name in columns)]
    ratios, _, eager, compiled = means["all"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"- **{float(eager):.1f} times** as fast" in readme
    assert f"eager; **{float(compiled):.1f} times**, compiled" in readme
    assert f"[{int(ratios):,} cases](benchmarks/README.md)" in readme


def test_the_dark_picture_is_made_from_the_light_one() -> None:
    assert dark.main(["--check"]) == 0


def test_a_stale_picture_is_found_and_renewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    light = tmp_path / "run.png"
    shutil.copy(dark.LIGHT, light)
    assert dark.main(["--check"], light) == 1
    assert capsys.readouterr().err == "run-dark.png is not what python tools/dark.py writes\n"
    assert dark.main([], light) == 0
    assert dark.main(["--check"], light) == 0


def test_white_becomes_the_background_and_hues_stay() -> None:
    white, black, blue = np.array([1.0, 1, 1]), np.array([0.0, 0, 0]), np.array([0.0, 0, 0.5])
    assert np.allclose(dark.dark(white), dark.BACKGROUND)
    assert np.allclose(dark.dark(black), 1)
    assert np.argmax(dark.dark(blue)) == 2


def test_the_badges_say_what_the_metadata_says() -> None:
    """They are files: no service draws them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r"Python :: 3\.\d", c)]
    for picture, says in (("python", f"Python {pythons[0]} to {pythons[-1]}"), ("license", f"license {project['license']}")):
        text = (ROOT / "docs" / "pictures" / f"{picture}.svg").read_text(encoding="utf-8")
        assert f"<title>{says}</title>" in text
        assert f">{says.partition(' ')[2]}</text>" in text
        for page in ("README.md", "README.zh.md"):
            assert f"![{says}](docs/pictures/{picture}.svg)" in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("module", SOURCES)
def test_what_an_editor_shows_has_no_latex(module: str) -> None:
    """The site has the formulas in LaTeX; a docstring has them in plain text."""
    tree = ast.parse(SOURCES[module].read_text(encoding="utf-8"))
    documented = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    shown = "\n".join(ast.get_docstring(node) or "" for node in documented)
    assert re.findall(r"\\[A-Za-z]+\{|:math:|\$\$|\\(?:cdot|frac|sqrt|lVert)\b", shown) == []
