"""docs/explodes.md: after its install line, each section's commands print what stands below them.

``PYTHONPATH=tests:tests/support python tests/docs/test_explodes_page.py torch``
writes the current output of a framework's section into the page.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
from pathlib import Path

import consoles
import pages
import pytest
from docs.test_install_lines import LINE
from docs.test_start_page import TITLES
from installed import Installed

PAGE = pages.DOCS / "explodes.md"
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?(?![\w.])")
BARS = re.compile(r" +#+")


def is_same(now: str, printed: str) -> bool:
    """Whether two outputs differ at most in the last digits of their numbers: an explosion multiplies each rounding."""
    (words, ones), (others, more) = (
        (re.sub(" +", " ", NUMBER.sub("0", BARS.sub("", text))), NUMBER.findall(BARS.sub("", text))) for text in (now, printed)
    )
    return words == others and all(map(_near, ones, more))


def _near(a: str, b: str) -> bool:
    x, y = (float(text.replace(",", "")) for text in (a, b))
    return math.isclose(x, y, rel_tol=0.02) or (min(x, y) > 1e6 and math.isclose(math.log(x), math.log(y), rel_tol=0.02))


def run(framework: str, folder: Path) -> tuple[str, str]:
    """Return a section, and the same with the current output."""
    text = pages.section(PAGE, TITLES[framework])
    (line,) = LINE.findall(text)
    environment = Installed(line, folder)
    variables = dict(re.findall(r"^    export (\w+)=(\w+)", text, re.MULTILINE))
    consoles.write(text, folder)
    return text, consoles.renewed(text, lambda command: environment.shell(framework, command, **variables), is_same)


def test_the_section_prints_what_it_says(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    framework = pytestconfig.getoption("--backend")
    if f"\n## {TITLES[framework]}\n" not in PAGE.read_text(encoding="utf-8"):
        pytest.skip("the page has no section of this framework")
    text, now = run(framework, tmp_path)
    assert len(consoles.commands(text)) > 4
    assert now == text


def test_what_is_the_same() -> None:
    assert is_same("step 14  4.646e+07  ###\nloss 0.0551", "step 14  4.7e+07  ####\nloss 0.055")
    for other in ("step 14  4.646e+09", "step 15  4.646e+07", "step 14  4.646e+07  <- it leaves", "stop 14  4.646e+07"):
        assert not is_same("step 14  4.646e+07", other)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            before, after = run(name, Path(scratch))
        PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
