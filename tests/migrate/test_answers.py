"""The tool that compares two runs of the migration: which clips have another answer, and whether any fell silent."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "migrate_answers.py"


def document(**lines: str) -> dict[str, Any]:
    """Return what the command prints for one file, with a site of an outcome for each line."""
    sites = [
        {"code": "GM402", "outcome": outcome, "cell": None, "line": int(line[1:]), "text": "c / n"}
        for line, outcome in lines.items()
    ]
    return {"files": [{"path": "a.py", "sites": sites}]}


@pytest.mark.parametrize(
    ("before", "after", "said", "status"),
    [
        ({"_3": "manual"}, {}, "named -> silent: a.py:3: GM402 c / n", 1),
        ({"_3": "rewritten"}, {"_3": "unchanged"}, "rewritten -> quiet: a.py:3", 1),
        ({"_3": "rewritten"}, {"_3": "manual"}, "rewritten -> named: a.py:3", 0),
        ({}, {"_7": "manual"}, "silent -> named: a.py:7", 0),
        ({"_3": "manual"}, {"_3": "manual"}, "before: 0 rewritten, 1 named, 0 quiet\nafter: 0 rewritten, 1 named, 0 quiet", 0),
    ],
)
def test_the_answers_of_two_runs_are_compared(
    before: dict[str, str], after: dict[str, str], said: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for file, lines in zip(files, (before, after), strict=True):
        file.write_text(json.dumps(document(**lines)))
    assert runpy.run_path(str(TOOL))["main"]([*map(str, files)]) == status
    out = capsys.readouterr().out
    assert said in out
    assert (" -> " in out) is (before != after)
