"""Runs programs in copies of one process that has imported a framework, which takes seconds; a copy takes none.

It does not suit tests of an import. A copy has imported the framework already, in the environment of the first process.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launched import TIME_LIMIT, environment

#: what a framework imports when a program first needs it: as long as its own import, for each copy of a training
LATE = {"torch": "torch._dynamo"}

Program = tuple[Sequence[str], Mapping[str, str]]  #: Python's arguments, and the environment


def run(
    framework: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    python: str | Path = sys.executable,
) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENTS``; return its status and what it prints."""
    [done] = together(framework, [(arguments, environment() if env is None else env)], cwd, python)
    return done


def together(
    framework: str, programs: Sequence[Program], cwd: Path | None = None, python: str | Path = sys.executable
) -> list[subprocess.CompletedProcess[str]]:
    """Run programs at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = [(Path(folder, f"{i}.out"), Path(folder, f"{i}.err")) for i in range(len(programs))]
        asked = [
            {"arguments": list(arguments), "env": dict(env), "folder": str(cwd or Path.cwd()), "files": list(map(str, files))}
            for (arguments, env), files in zip(programs, pairs, strict=True)
        ]
        statuses = _ask(_original(framework, python), asked)
        said = [[file.read_text("utf-8", "replace") for file in files] for files in pairs]
    return [subprocess.CompletedProcess([], status, *two) for status, two in zip(statuses, said, strict=True)]


def _ask(original: subprocess.Popen[str], asked: list[dict[str, Any]]) -> list[int]:
    assert original.stdin
    assert original.stdout
    print(json.dumps(asked), file=original.stdin, flush=True)
    answer = original.stdout.readline()
    assert answer, "the process that copies itself has ended"
    statuses: list[int] = json.loads(answer)
    return statuses


@functools.cache
def _original(framework: str, python: str | Path) -> subprocess.Popen[str]:
    """Return a process that copies itself; it ends with this one."""
    command = [str(python), "-P", __file__, framework]
    env = environment(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3", JAX_PLATFORMS="cpu")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    atexit.register(process.communicate)
    return process


# ---- in the other process ----------------------------------------------------------------------------------------------------


def _serve(framework: str) -> None:
    """Make copies until this process is a copy, or the tests end."""
    importlib.import_module(framework)
    if late := LATE.get(framework):
        importlib.import_module(late)
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            children = []
            for asked in json.loads(line):
                if not (child := os.fork()):
                    _become(**asked)
                    return
                children.append(child)
            print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], file=answers, flush=True)


def _become(arguments: list[str], env: dict[str, str], folder: str, files: list[str]) -> None:
    """Do in this copy what ``python ARGUMENTS`` does."""
    signal.alarm(TIME_LIMIT)
    for number, name in enumerate([os.devnull, *files]):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    if arguments[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        arguments = arguments[2:]
    what, *rest = arguments
    if what == "-c":
        code, *rest = rest
        sys.argv = ["-c", *rest]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(main))
    elif what == "-m":
        name, *rest = rest
        sys.argv = [name, *rest]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [what, *rest]
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1])
