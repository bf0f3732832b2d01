"""Calls with a time limit: in a thread of their own, which is left behind when it does not come back."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Hung", "Timed"]


class Hung(Exception):
    """A call that did not end within the time limit."""


class Timed:
    """Runs one call after the other in one thread, as long as each ends within the limit; else the next gets a fresh one."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] | None = None
        self._answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def __call__(self, function: Callable[[], Any]) -> Any:
        """What the function returns or raises, an attempt to exit included.

        Raises:
            Hung: when the time is over; the thread goes on, but nobody waits for it.
        """
        if self._calls is None:
            self._start()
        assert self._calls is not None
        self._calls.put(function)
        try:
            good, answer = self._answers.get(timeout=self.seconds)
        except queue.Empty:
            self.close()  # it ends after this call, if that ever ends
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
        self._calls, self._answers = queue.SimpleQueue(), queue.SimpleQueue()  # the answers of one left behind go nowhere
        # a daemon: a call that hangs does not keep the process
        threading.Thread(target=_serve, args=(self._calls, self._answers), daemon=True, name="conformance case").start()


def _serve(calls: queue.SimpleQueue[Any], answers: queue.SimpleQueue[tuple[bool, Any]]) -> None:
    while (function := calls.get()) is not None:
        try:
            answers.put((True, function()))
        except BaseException as error:  # SystemExit and KeyboardInterrupt of a target are its own
            answers.put((False, error))
