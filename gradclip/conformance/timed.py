"""Calls with a time limit, in a separate thread, which is abandoned if it hangs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Hung", "Timed"]


class Hung(Exception):
    """A call that did not end within the time limit."""


class Timed:
    """Runs calls in one thread while each ends within the limit; after a timeout the next call gets a new thread."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] | None = None
        self._answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def __call__(self, function: Callable[[], Any]) -> Any:
        """The function's result or exception, also an attempt to exit.

        Raises:
            Hung: after the time limit; the thread goes on without being awaited.
        """
        if self._calls is None:
            self._start()
        assert self._calls is not None
        self._calls.put(function)
        try:
            good, answer = self._answers.get(timeout=self.seconds)
        except queue.Empty:
            self.close()  # the thread ends after this call, if the call ends
            raise Hung(f"did not end within {self.seconds:g} seconds") from None
        if good:
            return answer
        raise answer

    def close(self) -> None:
        """Let the thread end."""
        if self._calls is not None:
            self._calls.put(None)
        self._calls = None

    def _start(self) -> None:
        self._calls, self._answers = queue.SimpleQueue(), queue.SimpleQueue()  # the results of an abandoned thread are dropped
        # a daemon: a call that hangs does not keep the process alive
        threading.Thread(target=_serve, args=(self._calls, self._answers), daemon=True, name="conformance case").start()


def _serve(calls: queue.SimpleQueue[Any], answers: queue.SimpleQueue[tuple[bool, Any]]) -> None:
    while (function := calls.get()) is not None:
        try:
            answers.put((True, function()))
        except BaseException as error:  # SystemExit and KeyboardInterrupt of a target are its own
            answers.put((False, error))
