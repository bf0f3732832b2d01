"""The command ``gradclip migrate``: its JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from migrate.command import made, migrate

from gradclip.migrate import output


def test_the_json_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(a="x = 1\nold\n", b="by_hand(1)\nleave\n", c="x = 1\n", d="print 'unreadable'\n")
    assert migrate("--json", ".") == 2
    captured = capsys.readouterr()
    assert captured.err == ""
    site = {"assumption": "", "cell": None, "column": 1, "advice": "", "more": "", "lacks": ""}
    nothing = {"changed": False, "written": False, "diff": "", "error": None}
    message = "Python 2, not 3: Missing parentheses in call to 'print'. Did you mean print(...)?"
    assert json.loads(captured.out) == {
        "schema": output.SCHEMA,
        "files": [
            {
                **nothing,
                "path": "a.py",
                "changed": True,
                "sites": [{**site, "code": "XX1", "outcome": "rewritten", "line": 2, "text": "old", "reason": "It is old."}],
                "diff": "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n x = 1\n-old\n+new\n",
            },
            {
                **nothing,
                "path": "b.py",
                "sites": [
                    {
                        **site,
                        "code": "XX2",
                        "outcome": "manual",
                        "line": 1,
                        "text": "by_hand(1)",
                        "reason": "Nobody knows.",
                        "advice": "Do it.",
                        "more": "gradclip explain XX2",
                    },
                    {**site, "code": "XX3", "outcome": "unchanged", "line": 2, "text": "leave", "reason": "It is good."},
                ],
            },
            {**nothing, "path": "d.py", "sites": [], "error": {"message": message, "cell": None, "line": 1, "column": 1}},
        ],
        "totals": {
            "files": 4,
            "changed": 1,
            "annotated": 0,
            "written": 0,
            "failed": 1,
            "skipped": 0,
            "rewritten": 1,
            "manual": 1,
            "unchanged": 1,
            "lacking": 0,
        },
        "exit_code": 2,
    }


@pytest.mark.parametrize(("options", "diff", "written"), [(["--write"], True, True), (["--check"], False, False)])
def test_the_json_of_a_write_and_of_a_check(
    options: list[str], diff: bool, written: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(a="old\n")
    assert migrate("--json", "a.py", *options) == 1
    (found,) = json.loads(capsys.readouterr().out)["files"]
    assert (bool(found["diff"]), found["written"], found["changed"]) == (diff, written, True)


def test_the_json_of_nothing_is_a_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate("--json", ".") == 0
    assert json.loads(capsys.readouterr().out)["files"] == []


def test_the_json_of_a_name_that_is_no_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.close(os.open(b"\xe9.py", os.O_CREAT | os.O_WRONLY))
    Path(os.fsdecode(b"\xe9.py")).write_text("old\n")
    assert migrate("--json", ".") == 1
    (found,) = json.loads(capsys.readouterr().out)["files"]
    assert os.fsencode(found["path"]) == b"\xe9.py"
    assert migrate(".") == 1
    assert r"--- a/\udce9.py" in capsys.readouterr().out
