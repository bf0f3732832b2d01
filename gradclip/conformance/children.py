"""One process for each framework, and the JSON lines that it sends.

One process cannot import them all (TensorFlow before Paddle crashes it), and a framework that crashes or hangs must not end the
command. So ``gradclip backends`` and ``gradclip demo`` start ``python -m MODULE`` for each framework and read its standard
output. The framework's own output goes to standard error, and is shown only if the process fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradclip.core import isolation

__all__ = ["Message", "channel", "ending", "run", "told", "two_at_a_time", "variables_of"]

Message = dict[str, Any]  #: one JSON line

_ROOT = Path(__file__).resolve().parents[2]  # the folder of gradclip

#: no notices in the log; accelerator memory only as needed
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "GLOG_minloglevel": "3"}
_FAILED = 97  # the exit status after an exception that was sent
_MODEST = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_running: set[subprocess.Popen[str]] = set()
_stopped = threading.Event()  #: an interrupted command has ended its processes, and starts no more


def variables_of(own: dict[str, str]) -> dict[str, str]:
    """The environment of a process, with its own variables."""
    return {**_QUIET, **_MODEST, **os.environ, **_path(), **own}


def run(
    module: str,
    arguments: Sequence[str],
    receive: Callable[[Message], None],
    environment: dict[str, str] | None = None,
    seconds: float = 600.0,
) -> str | None:
    """Run ``python -m module arguments`` and pass each message to ``receive``.

    Returns:
        None if it succeeded; else one line that says how it failed.
    """
    error: str | None = "ended without an answer"
    # -P: the current folder must not hide an installed package
    command, variables = [sys.executable, "-P", "-m", module, *arguments], variables_of(environment or {})
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": log}
        with subprocess.Popen(command, **pipes, text=True, errors="replace", env=variables) as child, _stoppable(child):
            timer = threading.Timer(seconds, child.kill)
            timer.start()
            try:
                whole = (line for line in child.stdout or () if line.endswith("\n"))  # its death may have cut one off
                for message in map(json.loads, whole):
                    if "end" in message:
                        error = message["end"]
                    else:
                        receive(message)
                status = child.wait()
                timed_out = not timer.is_alive()
            finally:
                timer.cancel()
                child.kill()  # no effect if it has ended
        if timed_out:
            return f"did not end within {seconds:g} seconds"
        log.seek(0)
        return ending(status, log.read()) if status not in (0, _FAILED) else error


@contextmanager
def _stoppable(child: subprocess.Popen[str]) -> Iterator[None]:
    """Within it, an interrupt of the command ends the process, and raises in the thread that waits for it."""
    _running.add(child)
    try:
        if _stopped.is_set():
            child.kill()
        yield
    finally:
        _running.discard(child)
    if _stopped.is_set():
        raise KeyboardInterrupt


def _path() -> dict[str, str]:
    """The variables for Python's path; it has the current folder only if this gradclip is in it: a clone needs no install."""
    variables = isolation.environment()
    if Path.cwd() == _ROOT and _ROOT.name not in ("site-packages", "dist-packages"):
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), variables["PYTHONPATH"]]))
    return variables


def two_at_a_time(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """``[function(item) for item in items]``, two calls at a time, each with its own process."""
    pool = ThreadPoolExecutor(2)
    try:
        return list(pool.map(function, items))
    except BaseException:
        _stopped.set()
        for child in list(_running):
            child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        _stopped.clear()


@contextmanager
def channel() -> Iterator[Callable[[Message], None]]:
    """In the child: a function that sends a message to the parent. It also sends how the child ends: an exception, or none."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # a framework's output is not for the parent

        def send(message: Message) -> None:
            print(json.dumps(message), file=out, flush=True)

        try:
            yield send
        except (Exception, SystemExit) as error:  # any exception: the parent reports it with the framework's name
            traceback.print_exc()
            send({"end": told(error)})
            raise SystemExit(_FAILED) from None
        send({"end": None})


def told(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


def ending(status: int, log: str) -> str:
    """How a process ended, in words."""
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"crashed with {name}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return f"ended with exit status {status}" + (f": {lines[-1][:500]}" if lines else "")
