"""Pages with code: their Python blocks run in order, and each prints the text block below it."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```\n(?:\n\1```text\n(.*?)^\1```\n)?", re.MULTILINE | re.DOTALL)


def section(page: Path, title: str) -> str:
    """Return the text under a heading of the second level."""
    return page.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def run(text: str, name: str, names: dict[str, Any]) -> str:
    """Return the text with the current output of its blocks.

    Args:
        text: the text of a page.
        name: the page's name, for tracebacks.
        names: the names for the first block; each block adds the names that it defines.
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
