"""The command line of the tools that write one text file: without an option they write it, with ``--check`` they compare."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None, *, tool: str, make: Callable[[], str], path: Path) -> int:
    """Write the text of a tool, or compare it with the file; return the exit code: 1 if the file is not current."""
    parser = argparse.ArgumentParser(prog=f"python tools/{tool}.py")
    parser.add_argument("--check", action="store_true", help="write nothing, and compare")
    is_check, made = parser.parse_args(arguments).check, make()
    if not is_check:
        path.write_text(made, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != made:
        print(f"{path.name} is not what python tools/{tool}.py makes", file=sys.stderr)
        return 1
    return 0
