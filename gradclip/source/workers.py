"""Processes that migrate files and write none: only the parent writes, so a process can be killed at any moment.

Each process has its own pipes, and shares no lock. It ends when its standard input ends, so also if the parent is killed.
It starts isolated (``-I``): the user's folder hides none of Python's modules from it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any

from gradclip.source.interrupts import signals_wait

__all__ = ["Killed", "Unstarted", "Workers", "waited"]

#: the process imports gradclip from the parent's file, and looks for other packages first in its own folders
_BOOT = """
import sys
from importlib import util
name, path, *folders = sys.argv[1:]
sys.path += [folder for folder in folders if folder not in sys.path]
spec = util.spec_from_file_location(name, path)
sys.modules[name] = package = util.module_from_spec(spec)
spec.loader.exec_module(package)
from gradclip.source.workers import serve
serve()
"""

_OBJECTS = 50_000  #: before the garbage collector looks at them: a tree has many, and few of them become garbage

#: the process on the other side of the pipes is gone
_ENDED = (OSError, EOFError, pickle.UnpicklingError)


class Killed(Exception):
    """The process that worked on a task has died."""


class Unstarted(Exception):
    """No process can be started, for the reason in the message; no process has seen the task."""


def waited(answer: Future[Any]) -> Any:
    """Wait for the result of a task.

    Raises:
        Killed: if the task has killed a process, and another one, or none could be started for it.
        Unstarted: if no process can be started.
    """
    while not answer.done():
        wait([answer], 1.0)  # on Windows, Ctrl-C cannot end a wait
    return answer.result()


class Workers:
    """A thread for each process; a process that dies is replaced, and its task is tried once more.

    Args:
        function: called with each task, in one of the processes; pickled once.
        count: the number of processes.
    """

    def __init__(self, function: Callable[[Any], Any], count: int) -> None:
        self._function = pickle.dumps(function)
        self._tasks: SimpleQueue[tuple[Future[Any], Any] | None] = SimpleQueue()
        self._processes: list[_Process | None] = [None] * count
        self._closed = False
        self._works = False  #: whether any process could be started
        self._failed = ""  #: why the first could not
        self._threads = [threading.Thread(target=self._serve, args=(number,), daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        self._tasks.put((answer, task))
        return answer

    def close(self) -> None:
        """Kill the processes: they have nothing that could be lost."""
        self._closed = True
        for _ in self._processes:
            self._tasks.put(None)
        for process in list(self._processes):
            if process is not None:
                process.kill()
        for thread in self._threads:
            thread.join()

    def _serve(self, number: int) -> None:
        while (asked := self._tasks.get()) is not None and not self._closed:
            answer, task = asked
            try:
                answer.set_result(self._asked(number, task))
            except (Killed, Unstarted) as error:
                answer.set_exception(error)
        if (process := self._processes[number]) is not None:
            process.end()

    def _asked(self, number: int, task: Any) -> Any:
        for attempt in range(2):  # perhaps something else has killed the first one
            try:
                process = self._started(number)
            except Unstarted:
                if attempt:
                    raise Killed from None  # the task may have done it: the parent must not try it
                raise
            try:
                return process.ask(task)
            except _ENDED:
                process.end()
                self._processes[number] = None
        raise Killed

    def _started(self, number: int) -> _Process:
        """This thread's process, which has the function."""
        if (process := self._processes[number]) is None:
            if self._failed:
                raise Unstarted(self._failed)
            self._processes[number] = process = _Process()
            try:
                process.prepare(self._function)
            except Unstarted as error:
                process.end()
                self._processes[number] = None
                if not self._works:
                    self._failed = str(error)  # the next would fail too
                raise
            self._works = True
        if self._closed:
            raise Unstarted("closed")
        return process


class _Process:
    """One process and its pipes."""

    def __init__(self) -> None:
        path = sys.modules["gradclip"].__file__ or ""
        folders = [folder for folder in sys.path if folder]
        command = [sys.executable, "-I", f"-Xutf8={sys.flags.utf8_mode}", "-c", _BOOT, "gradclip", path, *folders]
        # Ctrl-C in a terminal goes to a group of processes: only the parent handles it
        group, flags = None if os.name == "nt" else 0, getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        pipe = subprocess.PIPE
        try:
            with signals_wait():
                self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=group, creationflags=flags)
        except (OSError, ValueError) as error:
            raise Unstarted(str(error)) from None

    def prepare(self, function: bytes) -> None:
        """Send the function, and wait until it is loaded."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(function)
            self._child.stdin.flush()
            problem = pickle.load(self._child.stdout)
        except _ENDED:
            problem = "the process ended while it started"
        if problem:
            raise Unstarted(problem)

    def ask(self, task: Any) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        pickle.dump(task, self._child.stdin)
        self._child.stdin.flush()
        return pickle.load(self._child.stdout)

    def kill(self) -> None:
        """Kill the process: a thread that waits for its answer goes on."""
        self._child.kill()

    def end(self) -> None:
        """Kill the process and close its pipes, which no thread may be using."""
        self._child.kill()
        with contextlib.suppress(OSError), self._child:  # closes the pipes, and waits
            pass


# ---- in the process ------------------------------------------------------------------------------------------------------


def serve() -> None:
    """Answer the tasks of standard input on standard output."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write to the parent's pipe
    tasks: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    function = tasks.get()
    pickle.dump("" if callable(function) else function, out)
    out.flush()
    gc.freeze()  # what the imports have made stays
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    while True:
        pickle.dump(function(tasks.get()), out)
        out.flush()


def _read(tasks: SimpleQueue[Any]) -> None:
    """Read the function and the tasks in a thread of its own, which sees the end of the input in the middle of a task."""
    try:
        try:
            tasks.put(pickle.load(sys.stdin.buffer))
        except Exception as error:  # its module cannot be imported here
            tasks.put(f"the function cannot be loaded: {type(error).__name__}: {error}")
            sys.stdin.buffer.read()  # the rest of the function; then the parent closes the pipe
        while True:
            tasks.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(1)
