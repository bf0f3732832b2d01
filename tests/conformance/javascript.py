"""Runs ``node SCRIPT ARGUMENT ...`` with the package ``quickjs``, for scripts that only read a file and print."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import quickjs

SHIM = """
const process = { argv: ARGV, exitCode: 0 };
const console = { log: print };
const require = () => ({ readFileSync: read });
"""


def run(script: str, arguments: Sequence[str], output: Callable[[str], None]) -> int:
    """Run a script and return its exit code."""
    context = quickjs.Context()
    context.add_callable("print", output)
    context.add_callable("read", lambda path, _: Path(path).read_text("utf-8"))
    context.eval(SHIM.replace("ARGV", json.dumps(["node", "script", *arguments])))
    context.eval(f"(() => {{ {script} }})()")
    return int(context.eval("process.exitCode"))


def install(folder: Path) -> None:
    """Write a program ``node`` into a folder that follows the real one on the PATH."""
    folder.mkdir()
    program = folder / "node"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, __file__])} "$@"\n')
    program.chmod(0o755)


if __name__ == "__main__":
    raise SystemExit(run(Path(sys.argv[1]).read_text("utf-8"), sys.argv[2:], print))
