"""Each text that a tool writes into the docs is current, and the tool finds and renews a stale one."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import doctor_codes
import equivalence
import house
import meanings
import migrate_codes
import natives_page
import pytest

TOOLS = [doctor_codes, equivalence, house, meanings, migrate_codes, natives_page]
pytestmark = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)


def test_what_is_written_is_current(tool: ModuleType) -> None:
    assert tool.main(["--check"]) == 0


def test_a_stale_one_is_found_and_renewed(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "written"
    assert tool.main(["--check"], path=page) == 1
    assert capsys.readouterr().err == f"{page.name} is not what python tools/{tool.__name__}.py makes\n"
    assert tool.main([], path=page) == 0
    assert tool.main(["--check"], path=page) == 0
    page.write_text(page.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert tool.main(["--check"], path=page) == 1
