"""Pages with files and a console: the files that they show, and their commands with what each prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w.]+)`:\n\n```(?:python|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[tuple[str, str]]:
    """Return each command of a page, with its output."""
    return [pair for block in _CONSOLE.findall(text) for pair in _of_block(block)]


def _of_block(block: str) -> list[tuple[str, str]]:
    _, *parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    return list(zip(parts[::2], parts[1::2], strict=True))


def write(text: str, folder: Path) -> None:
    """Write the files that a page shows."""
    for name, content in FILE.findall(text):
        (folder / name).write_text(content, encoding="utf-8")


def renewed(text: str, output: Callable[[str], str], is_same: Callable[[str, str], bool]) -> str:
    """Return the page with the output of its commands; keep one that is the same but for what varies."""

    def one(command: str, printed: str) -> str:
        now = output(command)
        return f"$ {command}\n{printed if is_same(now, printed) else now}"

    return _CONSOLE.sub(lambda block: f"```console\n{''.join(one(*pair) for pair in _of_block(block[1]))}```", text)
