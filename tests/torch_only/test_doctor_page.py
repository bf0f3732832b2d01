"""docs/doctor.md: its example prints what the page shows, except times; its table is the doctor's.

``PYTHONPATH=tests:tests/support:tools python tests/torch_only/test_doctor_page.py`` writes the current output into the page.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path

import doctor_codes
import pages

from gradclip.commands import cli

PAGE = pages.DOCS / "doctor.md"
_TIME = re.compile(r"[\d.e+-]+ (ms|%)")


def printed(text: str, folder: Path) -> str:
    """The page with the current output of its example."""
    block = pages.BLOCK.search(text)
    assert block is not None
    (folder / "train.py").write_text(block[2])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(["doctor", str(folder / "train.py"), "--steps", "20"]) == 1
    head, _, rest = text.partition("says so:\n\n```text\n")
    return f"{head}says so:\n\n```text\n{out.getvalue().lstrip()}```\n{rest.partition('```' + chr(10))[2]}"


def test_the_example(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    assert text.count("GD104 train.py:13") == 1
    assert _TIME.sub(r"0 \1", printed(text, tmp_path)) == _TIME.sub(r"0 \1", text)


def test_the_table() -> None:
    text = PAGE.read_text("utf-8")
    assert doctor_codes.with_table(text) == text
    assert text.count("\n| GD") + text.count("\n| GM") > 20


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(printed(PAGE.read_text("utf-8"), Path(folder)), "utf-8")
