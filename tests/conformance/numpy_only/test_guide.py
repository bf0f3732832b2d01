"""The guide: the test writes its files and runs its commands in order; each prints what the guide shows.

``PYTHONPATH=tests:tests/support python tests/conformance/numpy_only/test_guide.py`` renews the output in the guide.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import consoles
import pytest
from conformance import javascript
from launched import TIME_LIMIT

from gradclip.conformance.target import FEATURES

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "conformance.md"
EXAMPLES = ("examples/in_house_clip/clip.py", "examples/in_house_clip/clip_fixed.py", "examples/javascript/check_clip.js")

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARYING = re.compile(r"(?<= )\d+\.\d+ ?s\b|(?<=numpy )\d[\d.]+|(?<=mlx )\d[\d.]+|^=+|=+$", re.MULTILINE)


TABLE = re.compile(r"(?<=<!-- features -->\n)(.*?)(?=<!-- /features -->)", re.DOTALL)


def features() -> str:
    dtypes = [f"`{name}`" for name, meaning in FEATURES.items() if meaning == f"gradients of {name}"]
    rows = [f"| {', '.join(dtypes)} | gradients of that dtype |\n"]
    rows += [f"| `{name}` | {meaning} |\n" for name, meaning in FEATURES.items() if f"`{name}`" not in dtypes]
    return "".join(["| feature | the target supports |\n| --- | --- |\n", *rows])


def environment(folder: Path) -> dict[str, str]:
    """A reader's environment: this interpreter's programs come first, and Python imports from the working directory."""
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"], str(folder / "bin")))
    own = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return own | {"PATH": path, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"}


def output(command: str, folder: Path) -> str:
    """Return the standard output of a command; progress goes to standard error."""
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, cwd=folder, env=environment(folder), timeout=TIME_LIMIT
    ).stdout.decode()


def prepared(folder: Path) -> Path:
    """Return a folder with the files of the guide."""
    for example in EXAMPLES:
        shutil.copy(ROOT / example, folder)
    javascript.install(folder / "bin")
    consoles.write(GUIDE.read_text(encoding="utf-8"), folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("guide"))


TEXT = GUIDE.read_text(encoding="utf-8")
COMMANDS = consoles.commands(TEXT)


def masked(text: str) -> str:
    return VARYING.sub("0", text)


def test_the_commands_of_the_guide_print_what_the_guide_says(folder: Path) -> None:
    """In one test, because some commands read what an earlier one writes."""
    for command, printed in COMMANDS:
        assert masked(output(command, folder)) == masked(printed), command


def test_the_guide_has_every_feature() -> None:
    assert TABLE.search(TEXT)[1] == features()


def test_the_python_of_the_guide_runs(folder: Path) -> None:
    """The blocks that are not files run in order, as if typed."""
    files = {text for _, text in consoles.FILE.findall(TEXT)}
    typed = [block for block in PYTHON.findall(TEXT) if block not in files]
    assert typed
    command = [sys.executable, "-c", "\n".join(typed)]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=TIME_LIMIT)
    assert (done.returncode, done.stderr) == (0, "")


def renewed(text: str, folder: Path) -> str:
    """Return the guide with the output of its commands in a folder; keep output that differs only in times and versions."""

    text = TABLE.sub(features().replace("\\", r"\\"), text)
    return consoles.renewed(text, lambda command: output(command, folder), lambda now, printed: masked(now) == masked(printed))


def test_the_guide_can_be_renewed(tmp_path: Path) -> None:
    text = "before\n```console\n$ echo 1.5 s\n 1.25 s\n$ printf ' 1.5 s\\n'\n 1.25 s\n```\nafter\n"
    assert renewed(text, tmp_path) == text.replace("echo 1.5 s\n 1.25 s", "echo 1.5 s\n1.5 s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        GUIDE.write_text(renewed(TEXT, prepared(Path(scratch))), encoding="utf-8")
