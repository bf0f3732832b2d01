"""The guide: each of its commands runs on the example project, and prints the output in the guide. ``project.txt`` has more.

``PYTHONPATH=tests:tests/support python tests/migrate/test_guide.py`` writes the current output of the commands into both.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import TIME_LIMIT, forked

from gradclip.commands import cli

GUIDE = Path(__file__).parents[2] / "docs" / "migrate.md"
MORE = Path(__file__).with_name("project.txt")
PROJECT = MORE.with_suffix("")


BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Return each command of the console blocks, with the output below it."""
    for block in BLOCK.findall(text):
        _, *parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
        yield from zip(parts[::2], parts[1::2], strict=True)


def environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}


def arguments(command: str) -> list[str]:
    program, *given = shlex.split(command)
    assert program == "gradclip"
    return given


def output(command: str, folder: Path) -> str:
    """Return what a command writes to either stream, in a process of its own."""
    line = [sys.executable, "-P", "-m", "gradclip", *arguments(command)]
    done = subprocess.run(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, env=environment(), timeout=TIME_LIMIT
    )
    return done.stdout.decode()


def output_of_a_copy(command: str, folder: Path) -> str:
    """Return the same from a copy of this process, which has imported what the command does."""

    def main() -> int:
        os.dup2(1, 2)
        sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        return cli.main(arguments(command))

    return forked(main, folder, environment()).stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project; the commands of the guide change it one after the other."""
    return Path(shutil.copytree(PROJECT, tmp_path_factory.mktemp("guide") / "project"))


@pytest.mark.parametrize(
    ("command", "printed"), [pair for page in (GUIDE, MORE) for pair in commands(page.read_text(encoding="utf-8"))]
)
def test_a_command_prints_what_the_guide_says(command: str, printed: str, project: Path) -> None:
    assert output_of_a_copy(command, project) == printed


def test_the_guide_has_the_three_journeys() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert len(list(commands(text))) > 4
    for heading in ("## To gradclip", "## From old names to current ones", "## From one framework to another"):
        assert heading in text


def renewed(text: str, folder: Path) -> str:
    """Return the guide with the output of its commands in a folder."""

    def block(found: re.Match[str]) -> str:
        parts = [f"$ {command}\n{output(command, folder)}" for command, _ in commands(found[0])]
        return "".join(["```console\n", *parts, "```"])

    return BLOCK.sub(block, text)


def test_the_guide_can_be_renewed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    expected = "1 file read: nothing to do.\n"
    text = "before\n```console\n$ gradclip migrate a.py\nold\n$ gradclip migrate .\n```\nafter\n"
    assert renewed(text, tmp_path) == text.replace("old\n", expected).replace("migrate .\n", f"migrate .\n{expected}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(PROJECT, Path(scratch) / "project")
        for page in (GUIDE, MORE):
            page.write_text(renewed(page.read_text(encoding="utf-8"), copy), encoding="utf-8")
