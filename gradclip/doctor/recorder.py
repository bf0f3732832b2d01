"""The record of one run: the events, the end after so many steps, and what was replaced in the frameworks."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from gradclip.doctor.events import Event, Skip, Step

__all__ = ["EnoughSteps", "Recorder"]


class EnoughSteps(BaseException):
    """Ends the script. Not an Exception: a script that catches those must not catch this."""


class Recorder:
    """The events of a run, in order.

    Args:
        steps: an optimizer's steps after which the script ends.
        progress: called with the number of steps after each one.
    """

    def __init__(self, steps: int, progress: Callable[[int], None] = lambda _: None) -> None:
        self.steps, self.progress = steps, progress
        self.events: list[Event] = []
        self.names: dict[int, str] = {}  #: the parameters' names
        self.ranks: dict[int, list[float]] = {}  #: of each other process: the norms that it measured
        self.watches: dict[str, Any] = {}  #: by the name of the backend
        self.stepping: Any = None  #: the watch of the optimizer that steps now: what it calls is a part of the step
        self.is_first = True  #: whether this process prints the report, as the first of several
        self.frameworks: list[str] = []
        self.is_quiet = False  #: the watch itself works: what it calls is no event
        self._own = 0.0  # the watch's own time since the last step
        self._stepped = time.perf_counter()
        self.closers: list[Callable[[], None]] = []  #: called before the report
        self.last: list[Callable[[], None]] = []  #: called after the report
        self._steps: Counter[int] = Counter()
        self._undo: list[Callable[[], None]] = []

    @property
    def done(self) -> int:
        """The most steps that an optimizer made."""
        return max(self._steps.values(), default=0)

    def add(self, event: Event) -> None:
        """Record an event; a step may be the last one.

        Raises:
            EnoughSteps: after the last step, and at each event after it.
        """
        if self.done < self.steps:
            self.events.append(event)
            if isinstance(event, Step):
                self._steps[event.optimizer] += not isinstance(event, Skip)
                self.progress(self.done)
        if self.done >= self.steps:
            raise EnoughSteps

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """A block of the watch's own work: its time is not the script's, and its calls are no events."""
        before, self.is_quiet = self.is_quiet, True
        start = time.perf_counter()
        try:
            yield
        finally:
            self.is_quiet = before
            if not before:
                self._own += time.perf_counter() - start

    def since_the_last_step(self) -> float:
        """The seconds of the script since this was asked last."""
        now = time.perf_counter()
        seconds = now - self._stepped - self._own
        self._stepped, self._own = now, 0.0
        return seconds

    def replace(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put a function that watches in the place of one, until :meth:`restore`. A name that is missing is left out."""
        original = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)
        if callable(original):
            setattr(owner, name, functools.wraps(original)(make(original)))
            self._undo.append(lambda: setattr(owner, name, original))

    def undo(self, function: Callable[[], None]) -> None:
        """Call a function in :meth:`restore`."""
        self._undo.append(function)

    def restore(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()

    def leave_forks(self) -> None:
        """Watch nothing in the processes that the script forks: such a process runs to its end, and reports nothing."""
        if not hasattr(os, "register_at_fork"):
            return
        here = weakref.ref(self)  # a function at a fork stays for the life of the process

        def in_child() -> None:
            recorder = here()
            if recorder is not None:
                recorder.is_quiet, recorder.is_first = True, False
                recorder.closers.clear()
                recorder.last.clear()
                recorder.restore()

        os.register_at_fork(after_in_child=in_child)

    def say(self, text: str) -> None:
        """A line for the user, about the doctor itself."""
        sys.stderr.write(f"gradclip doctor: {text}\n")
