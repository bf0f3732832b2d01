"""Starts the doctor in several processes of this machine, with the variables that ``torchrun`` sets; process 0 reports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["LOCALHOST", "PORT", "World", "free_ports", "is_first", "launch", "world"]

PORT = "GRADCLIP_DOCTOR_PORT"  #: where the doctors meet, apart from the script's own store, which ends with the script
_ALONE = 30.0  #: seconds for process 0 after another one has failed: it may wait for that one
_LAST = 10.0  #: seconds for the others after process 0, and for all after an interrupt
LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class World:
    """Several processes, one of which this is, and where the doctors of them meet."""

    rank: int
    size: int
    address: str
    port: int
    is_own: bool  #: whether nobody else is at that port


def world() -> World | None:
    """As the environment says; None for one process."""
    rank, size = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if size < 2 or "MASTER_ADDR" not in os.environ:
        return None
    port = int(os.environ.get(PORT) or os.environ["MASTER_PORT"])
    return World(rank, size, os.environ["MASTER_ADDR"], port, is_own=PORT in os.environ)


def is_first() -> bool:
    """Whether this process reports, as far as :func:`launch` has started it."""
    return PORT not in os.environ or os.environ.get("RANK") == "0"


def launch(ranks: int, words: Sequence[str]) -> int:
    """Run ``gradclip doctor WORDS`` in each process; the exit status is that of process 0."""
    ports = free_ports(2)
    shared = {"MASTER_ADDR": LOCALHOST, "MASTER_PORT": ports[0], PORT: ports[1]}
    shared |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(ranks))
    if "OMP_NUM_THREADS" not in os.environ:
        shared["OMP_NUM_THREADS"] = "1"  # the processes share the cores
    command = [sys.executable, "-m", "gradclip", "doctor", *words]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in map(str, range(ranks)):
            started.append(subprocess.Popen(command, env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank}))
        return _status(started)
    except KeyboardInterrupt as error:
        if getattr(error, "code", 130) == 130:  # they have heard Ctrl-C too, and process 0 reports
            _until(lambda: all(_ended(started)), _LAST)
        raise
    finally:
        for process in started:
            process.kill()
            process.wait()


def _status(started: Sequence[subprocess.Popen[bytes]]) -> int:
    first, *others = started
    _until(lambda: first.poll() is not None or any(x.poll() for x in others))
    if not _until(lambda: first.poll() is not None, _ALONE):
        first.send_signal(signal.SIGINT)  # it waits in vain, and reports what it has seen
        _until(lambda: first.poll() is not None, _LAST)
    _until(lambda: all(_ended(others)), _LAST)
    status, *rest = (x.poll() for x in started)
    if status is None or status < 0 or (not status and any(rest)):  # a signal has a negative number
        return 2
    return status


def _ended(started: Sequence[subprocess.Popen[bytes]]) -> list[bool]:
    return [x.poll() is not None for x in started]


def _until(is_so: Callable[[], bool], seconds: float = float("inf")) -> bool:
    """Wait for it; whether it came in time."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def free_ports(many: int) -> list[str]:
    sockets = [socket.create_server((LOCALHOST, 0)) for _ in range(many)]
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
