"""Shared by tests that start processes: how a process finds the checks, and how a check's failure is recorded."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

TESTS = Path(__file__).parents[1]
PATHS = [str(TESTS), str(Path(__file__).parent)]  #: where the checks are, and what they share
TIME_LIMIT = 1200  #: seconds for a process: only one that hangs takes this long, even on a busy machine


def environment(**own: str) -> dict[str, str]:
    """Return this process's environment, with the checks' folders on the path and the working directory off it."""
    paths = [*PATHS, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"} | own


def start(module: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return the output and the exit status of a module; its framework has one thread."""
    return subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        env=environment(OMP_NUM_THREADS="1", **variables),
        check=False,
    )


def free_ports(many: int) -> list[int]:
    """Return free ports of this host."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(many)]
    ports = [free.getsockname()[1] for free in sockets]
    for free in sockets:
        free.close()
    return ports


def forked(main: Callable[[], int], folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Call a function in a copy of this process, which needs no imports; return its status and what it prints.

    Only for functions whose libraries have no threads: a copy does not have them.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaint:
        child = os.fork()
        if not child:
            _run(main, folder, variables, out.fileno(), complaint.fileno())
        _, ended = os.waitpid(child, 0)
        said = []
        for file in (out, complaint):
            file.seek(0)
            said.append(file.read().decode("utf-8", "replace"))
    return subprocess.CompletedProcess([], os.waitstatus_to_exitcode(ended), *said)


def _run(main: Callable[[], int], folder: Path, variables: Mapping[str, str], out: int, complaint: int) -> NoReturn:
    status = 1
    try:
        for file, number in ((out, 1), (complaint, 2)):
            os.dup2(file, number)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        signal.alarm(TIME_LIMIT)
        status = main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def failure(check: Callable[[], None]) -> str:
    """Return the traceback of a check that fails, or ""."""
    try:
        check()
    except Exception:
        return traceback.format_exc()
    return ""
