"""examples/first_clip.ipynb: its cells run in order and print what it stores; the first installs only where it must."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import subprocess
import sys
from typing import Any

import pytest
from pages import ROOT

NOTEBOOK = json.loads((ROOT / "examples" / "first_clip.ipynb").read_text(encoding="utf-8"))
CELLS = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run(cell: dict[str, Any], names: dict[str, Any]) -> str:
    """Return what a cell prints; it adds the names that it defines."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("".join(cell["source"]), "first_clip.ipynb", "exec"), names)
    return out.getvalue()


def test_the_cells_print_what_the_notebook_stores() -> None:
    names: dict[str, Any] = {}
    printed = [run(cell, names) for cell in CELLS]
    assert printed == ["".join(line for output in cell["outputs"] for line in output["text"]) for cell in CELLS]
    assert [bool(text) for text in printed] == [False, True, True, True, True, True]


def test_the_readme_shows_the_same() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    cells = [("".join(cell["source"]) + "\n", "".join(cell["outputs"][0]["text"])) for cell in CELLS[1:]]
    assert blocks[0] in cells


@pytest.mark.parametrize("installed", [True, False])
def test_the_first_cell_installs_only_where_gradclip_is_not_installed(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda line, check: calls.append(line))
    if not installed:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    run(CELLS[0], {})
    install = [sys.executable, "-m", "pip", "install", "-q", "gradclip[torch,migrate,demo]"]
    assert calls == ([] if installed else [install])
