"""``gradclip migrate`` in a folder, in this process or in another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from launched import TIME_LIMIT

from gradclip.commands import cli


def made(**texts: str) -> None:
    for name, text in texts.items():
        Path(f"{name}.py").write_text(text, encoding="utf-8")


def migrate(*arguments: str) -> int:
    return cli.main(["migrate", *arguments])


def command(*arguments: str, stdin: bytes = b"", folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a separate process, with the real codemod."""
    environment = {**os.environ, "COLUMNS": "80", **variables}
    line = [sys.executable, "-P", "-m", "gradclip", "migrate", *arguments]
    return subprocess.run(line, input=stdin, capture_output=True, cwd=folder, env=environment, timeout=TIME_LIMIT)
