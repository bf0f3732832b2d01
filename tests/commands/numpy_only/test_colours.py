"""Commands print colours on terminals only, and never with ``NO_COLOR``: a pseudo-terminal shows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launched import TIME_LIMIT

pty = pytest.importorskip("pty")  # Windows has no pty

COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
COMMANDS = {
    "demo": ["demo", "--steps", "1", "--frameworks", "numpy"],
    "conformance": ["conformance", "gradclip:numpy", "--select", "torch.clip_grad_norm_/A1"],
    "migrate": ["migrate", "a.py"],
}


def on_a_terminal(arguments: list[str], folder: Path, **variables: str) -> bytes:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    command = [sys.executable, "-m", "gradclip", *arguments]
    environment = {**kept, "TERM": "xterm-256color", "COLUMNS": "100", **variables}
    child = subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=folder, env=environment)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux raises this at the end
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    assert child.wait(TIME_LIMIT) in (0, 1)
    return b"".join(parts)


def colours(written: bytes) -> set[bytes]:
    """Return the foreground and background colours; bold and dim do not count."""
    codes = [code for sequence in COLOUR.findall(written) for code in sequence[2:-1].split(b";")]
    return {code for code in codes if code.isdigit() and (30 <= int(code) <= 49 or 90 <= int(code) <= 107)} - {b"39", b"49"}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_color_turns_colours_off(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n\ntorch.nn.utils.clip_grad_norm_([], 1.0)\n", encoding="utf-8")
    assert colours(on_a_terminal(COMMANDS[name], tmp_path))
    assert not colours(on_a_terminal(COMMANDS[name], tmp_path, NO_COLOR="1"))
