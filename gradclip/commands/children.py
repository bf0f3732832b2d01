"""Each framework in a process of its own: starting one, and the JSON lines it answers with.

One process cannot hold them all (importing TensorFlow before Paddle crashes it), and a framework that crashes or hangs must not
take the command with it. So ``gradclip backends`` and ``gradclip demo`` start ``python -m MODULE`` a framework, and read what
it sends on its standard output; whatever the framework itself prints goes to standard error and is shown only when it fails.
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

__all__ = ["Message", "channel", "run", "two_at_a_time"]

Message = dict[str, Any]  #: one JSON line

_ROOT = Path(__file__).resolve().parents[2]  # the folder that has gradclip

#: no notices in the log, no memory of an accelerator taken beyond what is used
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "GLOG_minloglevel": "3"}
_FAILED = 97  # the exit status after an exception, which was sent
_MODEST = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def run(
    module: str,
    arguments: Sequence[str],
    receive: Callable[[Message], None],
    environment: dict[str, str] | None = None,
    seconds: float = 600.0,
) -> str | None:
    """Run ``python -m module arguments`` and hand each message it sends to ``receive``.

    Returns:
        None where it ended well; else one line that says how it failed.
    """
    # -P: a folder that happens to be the current one must not stand in for an installed package
    command = [sys.executable, "-P", "-m", module, *arguments]
    variables = {**_QUIET, **_MODEST, **os.environ, **_path_to_clone(), **(environment or {})}
    error: str | None = "ended without an answer"
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": log}
        with subprocess.Popen(command, **pipes, text=True, errors="replace", env=variables) as child:
            timer = threading.Timer(seconds, child.kill)
            timer.start()
            try:
                for line in child.stdout or ():
                    message = json.loads(line)
                    if "end" in message:
                        error = message["end"]
                    else:
                        receive(message)
                status = child.wait()
                timed_out = not timer.is_alive()
            finally:
                timer.cancel()
                child.kill()  # of no effect where it has ended
        if timed_out:
            return f"did not end within {seconds:g} seconds"
        log.seek(0)
        return _ending(status, log.read()) if status not in (0, _FAILED) else error


def _path_to_clone() -> dict[str, str]:
    """PYTHONPATH with the current folder, where this gradclip lies in it: in a clone, which needs no install."""
    if Path.cwd() != _ROOT:
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))}


def two_at_a_time(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """``[function(item) for item in items]``, each waiting for a process of its own."""
    pool = ThreadPoolExecutor(2)
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupted command starts no more


@contextmanager
def channel() -> Iterator[Callable[[Message], None]]:
    """In the child: a function that sends a message to the parent. How it ends is sent too: an exception, or none."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # what a framework prints is not for the parent

        def send(message: Message) -> None:
            print(json.dumps(message), file=out, flush=True)

        try:
            yield send
        except (Exception, SystemExit) as error:  # whatever it is, the parent reports it by the framework's name
            traceback.print_exc()
            send({"end": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"})
            raise SystemExit(_FAILED) from None
        send({"end": None})


def _ending(status: int, log: str) -> str:
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"crashed with {name}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return f"ended with exit status {status}" + (f": {lines[-1][:500]}" if lines else "")
