"""The README, and a section of docs/start.md: each block runs after exactly the install lines above it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import first_finding
import pages
import pytest
from docs.test_start_page import PAGE, TITLES
from frameworks.base import Framework
from installed import Installed

README = (pages.ROOT / "README.md").read_text(encoding="utf-8")
#: the reader has one
MODEL = "```python\nimport torch\n\nmodel = torch.nn.Linear(2, 1)\nmodel(torch.ones(1, 2)).sum().backward()\n```\n"
LINE = re.compile(r"^    pip install .*$", re.MULTILINE)
Make = Callable[[str], Installed]


@pytest.fixture
def install(tmp_path: Path) -> Make:
    return lambda line: Installed(line, tmp_path)


def chosen(backend: Framework) -> str:
    """Return the README's line with this framework in place of PyTorch, as its comment says."""
    (line,) = LINE.findall(README)
    assert "[torch," in line
    assert backend.name == "numpy" or f" {backend.name}" in f"{line.partition('#')[2].replace(',', '')} torch"
    return line.replace("torch,", "" if backend.name == "numpy" else f"{backend.name},")


def works(environment: Installed, *names: str) -> None:
    """Check that ``gradclip backends`` finds these frameworks, and no other, and that all of them work."""
    done = environment.run("-m", "gradclip", "backends", "--json")
    entries = {entry["name"]: entry for entry in json.loads(done.stdout)["backends"] if entry["installed"]}
    assert {name: entry["error"] for name, entry in entries.items()} == dict.fromkeys(names)
    for entry in entries.values():
        assert entry["dtypes"]["float32"] is None
        assert [why for why in entry["traced"].values() if why] == []
    assert done.returncode == 0


def test_the_blocks_of_the_readme(backend: Framework, install: Make) -> None:
    environment = install(chosen(backend))
    file = first_finding.write(environment.folder).relative_to(environment.folder)
    is_torch = backend.name == "torch"
    environment.blocks(MODEL + README if is_torch else README.partition("\n## One line\n")[0])
    lint = environment.run("-m", "gradclip", "lint", file.parts[0])
    assert first_finding.of_one_clip(lint.stdout) == first_finding.shown(), lint.stderr
    if is_torch:
        doctor = environment.run("-m", "gradclip", "doctor", str(file))
        assert "GM107 " in doctor.stdout, doctor.stdout + doctor.stderr
    if is_torch or backend.name == "numpy":  # tests of the commands run each framework's demo
        demo = environment.run("-m", "gradclip", "demo", "--steps", "12")
        assert demo.returncode == 0, demo.stdout + demo.stderr
        assert ("NumPy ran alone" in demo.stdout) == (backend.name == "numpy")


def test_the_section_of_the_first_page(backend: Framework, install: Make) -> None:
    text = pages.section(PAGE, TITLES[backend.name])
    environment = install(*LINE.findall(text))
    environment.blocks(text)
    has_numpy = "numpy" in environment.names
    assert has_numpy or backend.name == "torch"
    if not has_numpy:  # else a test of the command asks as much
        works(environment, backend.name)
