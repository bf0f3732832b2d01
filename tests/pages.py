"""Pages with code: their blocks of Python run one after the other, and print what the block of text below each says."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```\n(?:\n\1```text\n(.*?)^\1```\n)?", re.MULTILINE | re.DOTALL)


def section(page: Path, title: str) -> str:
    """What a page has under a heading of the second level."""
    return page.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def run(text: str, name: str, names: dict[str, Any]) -> str:
    """The text with what its blocks print today.

    Args:
        text: of a page.
        name: of the page, for tracebacks.
        names: what the first block can use; the names that the blocks define are added.
    """

    def printed(block: re.Match[str]) -> str:
        indent, code, shown = block.groups()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(textwrap.dedent(code), name, "exec"), names)
        if shown is None:
            assert not out.getvalue(), f"this prints, and {name} does not say so:\n{code}"
            return block[0]
        head = block[0][: block.start(3) - block.start()]
        return head + "".join((indent + line).rstrip() + "\n" for line in out.getvalue().splitlines()) + f"{indent}```\n"

    return BLOCK.sub(printed, text)
