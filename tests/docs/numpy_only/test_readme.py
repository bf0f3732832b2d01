"""The README's first screen: the program with two mistakes, and what the linter says; where it installs from."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import release
from pages import ROOT

from gradclip.commands import cli

PROGRAM = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINT = re.compile(r"^\$ gradclip lint \.\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_linter_says_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,), (shown,) = PROGRAM.findall(text), LINT.findall(text)
    assert len(program.splitlines()) == 10
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["lint", "."]) == 1
    assert capsys.readouterr().out == shown
    assert shown.count(" error: ") == 2


def test_one_command_makes_the_readmes_install_from_the_index(tmp_path: Path) -> None:
    for page in release.READMES:
        shutil.copy(ROOT / page, tmp_path)
    release.publish(tmp_path)
    for page in release.READMES:
        before, after = ((folder / page).read_text(encoding="utf-8") for folder in (ROOT, tmp_path))
        changed = [pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if len(set(pair)) == 2]
        assert [old.partition("#")[0] for old, _ in changed] == ["    pip install '.[torch,migrate,demo]'  "]
        assert [new.partition("#")[0] for _, new in changed] == ["    pip install 'gradclip[torch,migrate,demo]'  "]
