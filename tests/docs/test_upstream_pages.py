"""docs/upstream: on the version that a page names, its reproducer gives the wrong value, and with the patch the right one.

``PYTHONPATH=tests:tests/support python tests/docs/test_upstream_pages.py torch``
writes the current output of a framework's pages.
"""

from __future__ import annotations

import os
import pkgutil
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pytest

FOLDER = pages.DOCS / "upstream"
INDEX = FOLDER / "README.md"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page != INDEX)
#: "package==version", with _ for -
PINS = {
    line.strip().replace("-", "_")
    for name in ("constraints.txt", "tox.ini")
    for line in (pages.ROOT / name).read_text("utf-8").splitlines()
}
#: a function's first name -> the run of the tests that has its package
RUNS = {"torch": "torch", "paddle": "paddle", "tensorflow": "tensorflow", "keras": "tensorflow", "optax": "jax", "jax": "jax"}
OTHERS = {"agc_optims", "zclip"}  #: `tox -e third-parties` has them, and torch
PARTS = ["Reproducer", "The right value", "Patch", "What it does to a training"]
ORDINARY = np.array([3.0, 4.0])
HEAD = re.compile(r"# (.+)\n\n- Package: ([\w-]+) ([\d.]+)\n- Function: `([\w.]+)`\n\n## ")


def head(page: Path) -> tuple[str, ...]:
    """Return a page's title, package, version and function."""
    found = HEAD.match(page.read_text("utf-8"))
    assert found, f"{page.name} does not begin as the others do"
    return found.groups()


def of(run: str) -> list[Path]:
    """Return the pages for a run of the tests."""
    first = {page: head(page)[3].partition(".")[0] for page in PAGES}
    others = OTHERS if run == "torch" and os.environ.get("GRADCLIP_THIRD_PARTIES") else set()
    return [page for page in PAGES if RUNS.get(first[page]) == run or first[page] in others]


def is_right(got: Any, right: Any) -> bool:
    """Tell whether each number is right to 4 units in the last place of its dtype."""
    return bool(np.all(np.abs(got.astype(np.float64) - right) <= 4 * np.spacing(np.abs(right).astype(got.dtype))))


def patch(function: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the function that ``code`` defines in the place of the package's."""
    owner, _, name = function.rpartition(".")
    names: dict[str, Any] = {}
    exec(compile(code, f"the patch of {function}", "exec"), names)
    monkeypatch.setattr(pkgutil.resolve_name(owner), name, names[name])


def test_the_reproducers_are_wrong_and_the_patches_are_right(pytestconfig: pytest.Config) -> None:
    for page in of(pytestconfig.getoption("--backend")):
        with pytest.MonkeyPatch.context() as monkeypatch:
            check(page, monkeypatch)


def check(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, package, version, function = head(page)
    assert f"{package}=={version}".replace("-", "_") in PINS
    assert metadata.version(package).partition("+")[0] == version
    wrong, value, code = (pages.section(page, part) for part in PARTS[:3])
    names: dict[str, Any] = {}
    assert pages.run(wrong, page.name, names) == wrong
    assert pages.run(value, page.name, names) == value
    assert not is_right(names["got"], names["right"])
    before = [names["clipped"](ORDINARY, limit) for limit in (1.0, 10.0)]

    found = pages.BLOCK.findall(code)
    assert len(found) == 1
    patch(function, found[0][1], monkeypatch)
    pages.run(wrong, page.name, names)
    assert is_right(names["got"], names["right"])
    after = [names["clipped"](ORDINARY, limit) for limit in (1.0, 10.0)]
    assert is_right(after[0], ORDINARY / np.linalg.norm(ORDINARY, names.get("ORDER", 2)))
    assert is_right(after[1], ORDINARY)
    assert [one.dtype for one in after] == [one.dtype for one in before]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pages_have_one_form_and_a_run(page: Path) -> None:
    assert re.findall(r"^## (.+)$", page.read_text("utf-8"), re.MULTILINE) == PARTS
    for part in PARTS:
        assert len(pages.section(page, part).split()) > 10, part
    assert head(page)[3].partition(".")[0] in {*RUNS, *OTHERS}


def test_the_index_has_each_page_with_its_title_and_version() -> None:
    rows = [line for line in INDEX.read_text("utf-8").splitlines() if line.startswith("| [")]
    heads = [(page.name, *head(page)) for page in PAGES]
    assert rows == [f"| [{title}]({name}) | {package} {version} |" for name, title, package, version, _ in heads]


def test_a_wrong_value_is_found() -> None:
    right = np.array([0.6, 0.8])
    assert is_right(right.astype(np.float16), right)
    for wrong in (0 * right, right * np.nan, right * np.inf, right * 1.01, right * [1, -1]):
        assert not is_right(wrong.astype(np.float16), right)


if __name__ == "__main__":
    for path in of(sys.argv[1]):
        names: dict[str, Any] = {}
        for part in PARTS[:2]:
            before = pages.section(path, part)
            path.write_text(path.read_text("utf-8").replace(before, pages.run(before, path.name, names)), encoding="utf-8")
