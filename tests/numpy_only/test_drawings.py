"""Each drawing of the docs, and the page of equivalents, is current, and its tool finds and renews a stale one."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import equivalence
import house
import meanings
import pytest

pytestmark = pytest.mark.parametrize("tool", [house, meanings, equivalence], ids=lambda tool: tool.__name__)


def test_what_is_written_is_current(tool: ModuleType) -> None:
    assert tool.main(["--check"]) == 0


def test_a_stale_one_is_found_and_renewed(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "written"
    assert tool.main(["--check"], picture) == 1
    assert capsys.readouterr().err == f"{picture.name} is not what python tools/{tool.__name__}.py makes\n"
    assert tool.main([], picture) == 0
    assert tool.main(["--check"], picture) == 0
    picture.write_text(picture.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert tool.main(["--check"], picture) == 1
