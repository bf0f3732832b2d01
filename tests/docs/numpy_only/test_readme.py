"""The README's first screen: mistakes in public code, and what the linter says; where it installs from."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import first_finding
import pytest
import release
from pages import ROOT

from gradclip.commands import cli

ROW = re.compile(
    r"^\| \[[^]]*\b(\w+\.py):(\d+)\]"
    r"\(https://github\.com/[\w./-]+/blob/[0-9a-f]{40}/(?:[\w-]+/)*(\w+\.py)#L(\d+)\) \| ",
    re.MULTILINE,
)


def test_the_linter_says_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first_finding.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["lint", "examples"]) == 1
    assert first_finding.of_one_clip(capsys.readouterr().out) == first_finding.shown()
    assert first_finding.shown().count(" error: ") == 1


def test_the_links_of_the_findings_lead_to_their_lines() -> None:
    """Each is a line of a commit, so that it shows the mistake also after it was mended."""
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| Line | Mistake |\n")[2].partition("\n\n")[0]
    rows = ROW.findall(table)
    assert len(rows) == len(table.splitlines()) - 1 >= 5
    assert [row[:2] for row in rows] == [row[2:] for row in rows]
    assert len(re.findall(r"\]\(docs/lint/GM\d+\.md\)", table)) == len(rows)


def test_one_command_makes_the_readmes_install_from_the_index(tmp_path: Path) -> None:
    for page in (*release.READMES, "CITATION.cff", "SECURITY.md"):
        shutil.copy(ROOT / page, tmp_path)
    assert release.unplaced(tmp_path, "https://example.org/gradclip") == ["CITATION.cff", "SECURITY.md"]
    for _ in range(2):  # a second time it changes nothing
        release.publish(tmp_path, "https://example.org/gradclip/")
    assert release.unplaced(tmp_path, "https://example.org/gradclip") == []
    assert '\nrepository-code: "https://example.org/gradclip"\n' in (tmp_path / "CITATION.cff").read_text(encoding="utf-8")
    for page in release.READMES:
        before, after = ((folder / page).read_text(encoding="utf-8") for folder in (ROOT, tmp_path))
        changed = [pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if len(set(pair)) == 2]
        assert [old.partition("#")[0] for old, _ in changed] == ["    pip install '.[torch,tools]'  "]
        assert [new.partition("#")[0] for _, new in changed] == ["    pip install 'gradclip[torch,tools]'  "]
