"""A user without a clone: what gradclip prints names pages of the documentation, and no file of the repository."""

from __future__ import annotations

import ast
import re
from importlib import metadata
from pathlib import Path

import pytest
from sources import SOURCES

from gradclip.core.errors import page

PAGE = re.compile(r"\bpage\([\"']([^\"']+)[\"']\)")
CLONE = re.compile(r"(?<![\w./-])(docs|tests|tools|benchmarks|examples|backends)/[a-z]")


def printed(source: str) -> list[str]:
    """Return the texts of a source that may be printed: all but its docstrings, without addresses."""
    tree = ast.parse(source)
    blocks = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {id(x.body[0].value) for x in ast.walk(tree) if isinstance(x, blocks) and x.body and isinstance(x.body[0], ast.Expr)}
    texts = [x.value for x in ast.walk(tree) if isinstance(x, ast.Constant) and isinstance(x.value, str) and id(x) not in docs]
    return [re.sub(r"https?://\S+", "", text) for text in texts]


def test_no_text_names_a_file_of_a_clone() -> None:
    texts = {name: printed(path.read_text(encoding="utf-8")) for name, path in SOURCES.items()}
    found = {name: [text for text in ones if CLONE.search(text)] for name, ones in texts.items()}
    assert {name: texts for name, texts in found.items() if texts} == {}
    assert CLONE.search(printed('x = f"see docs/slots.md {x}"')[0]), "such a text would be found"


def test_the_pages_that_texts_name_exist() -> None:
    docs = Path(__file__).parents[3] / "docs"
    named = {one for path in SOURCES.values() for one in PAGE.findall(path.read_text(encoding="utf-8"))}
    assert len(named) >= 3
    for one in named:
        file, _, part = one.partition("#")
        heads = re.findall(r"^#+ (.+)$", (docs / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert not part or part in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_a_release_gives_the_address_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    told = metadata.metadata("gradclip")
    del told["Project-URL"]
    monkeypatch.setattr(metadata, "metadata", lambda name: told)
    assert page("slots.md") == "the page slots of the documentation"
    told["Project-URL"] = "Changelog, https://host.example/gradclip/blob/main/CHANGELOG.md"
    told["Project-URL"] = "Source, https://host.example/gradclip"
    assert page("slots.md#a-step") == f"https://host.example/gradclip/blob/v{told['Version']}/docs/slots.md#a-step"
