"""The record of one run: the events, the end after so many steps, and what was replaced in the frameworks."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterator
from typing import Any

from gradclip.doctor import threads
from gradclip.doctor.events import Clip, Event, Ids, Skip, Step, Zero
from gradclip.doctor.findings import Finding
from gradclip.doctor.guard import Guard, Make
from gradclip.doctor.launch import World
from gradclip.doctor.of_ranks import Measured
from gradclip.doctor.places import Place
from gradclip.doctor.run import TRIES

__all__ = ["EnoughSteps", "Recorder"]

_WAIT = 60.0  #: seconds for the books: longer than any look at gradients


class EnoughSteps(BaseException):
    """Ends the script. Not an Exception: a script that catches those must not catch this."""


class _Here(threading.local):
    """What the watch does in one thread."""

    def __init__(self) -> None:
        self.is_quiet = False
        self.stepping: Any = None
        self.own = 0.0  # the watch's own time since the last step
        self.stepped = time.perf_counter()


class Recorder:
    """The events of a run, in order.

    Args:
        steps: an optimizer's steps after which the script ends.
        progress: called with the number of steps after each one.
        to_run_eagerly: whether compiled code runs eagerly, so that the watch sees it.
    """

    def __init__(self, steps: int, progress: Callable[[int], None] = lambda _: None, *, to_run_eagerly: bool = False) -> None:
        self.steps, self.progress, self.to_run_eagerly = steps, progress, to_run_eagerly
        self.ran_eagerly: dict[str, Place] = {}  #: what the script compiles -> the first line that does
        self.events: list[Event] = []
        self.names: dict[int, str] = {}  #: the parameters' names
        self.ranks: dict[int, Measured] = {}  #: what each of several processes measured
        self.others: dict[int, list[Finding]] = {}  #: what is wrong in each other process
        self.world: World | None = None  #: the processes of which this one was started as a part; None: the environment tells
        #: from a function of processes that the script starts, and their number: the same with a watch in each process
        self.in_others: Callable[[Callable[..., Any], int], Callable[..., Any]] = lambda function, _: function
        self.watches: dict[str, Any] = {}  #: by the name of the backend
        self.is_first = True  #: whether this process prints the report, as the first of several
        self.frameworks: list[str] = []
        self.guard = Guard()
        self._here = _Here()
        self._books = threading.RLock()  # of all threads; not held while code of the script runs
        self._adding = threading.RLock()  # for the events alone: nothing waits while it is held
        self._idents: set[int] = set()  # of the threads with events
        self._to_interrupt = True  # whether the main thread still runs the script
        self.closers: list[Callable[[], None]] = []  #: called before the report
        self.last: list[Callable[[], None]] = []  #: called after the report
        self._is_closed = False
        self._steps: Counter[int] = Counter()
        self._tries: Counter[tuple[Place, Ids]] = Counter()  # skipped steps of gradients that stay not finite
        self._broken: Counter[tuple[Place, Ids]] = Counter()  # clips in a row of gradients that are not finite
        self._undo: list[Callable[[], None]] = []

    @property
    def done(self) -> int:
        """The most steps that an optimizer made."""
        return max(self._steps.values(), default=0)

    @property
    def is_stuck(self) -> bool:
        """Whether no step comes any more: a gradient stays not finite, and each step is skipped for it."""
        return max([*self._tries.values(), *self._broken.values()], default=0) >= max(self.steps, TRIES)

    def _is_enough(self) -> bool:
        return self.done >= self.steps or self.is_stuck

    def add(self, event: Event) -> None:
        """Record an event; a step may be the last one.

        Raises:
            EnoughSteps: after the last step, or where no step comes any more, and at each event after it.
        """
        if self.guard.is_off or self._is_closed:  # a thread without an event before the end goes on unwatched
            return
        with self._adding:
            if not self._is_enough():
                self.events.append(event)
                if isinstance(event, Step):
                    self._steps[event.optimizer] += not isinstance(event, Skip)
                    self.progress(self.done)
                self._count_tries(event)
            is_over = self._is_enough()
            self._idents.add(threading.get_ident())
        if is_over:
            if threading.get_ident() != threading.main_thread().ident and threads.is_of_python(threading.get_ident()):
                self.interrupt()  # the main thread may wait for this one
            raise EnoughSteps

    def _count_tries(self, event: Event) -> None:
        if isinstance(event, Skip):
            self._tries[event.where, event.ids] += 1
        elif isinstance(event, Clip) and event.is_broken:
            self._broken[event.where, event.ids] += 1
        elif isinstance(event, (Clip, Step)):
            self._broken.clear()
        if isinstance(event, (Step, Zero)) and not isinstance(event, Skip):
            self._tries.clear()

    def put(self, old: Event, new: Event) -> None:
        """Put an event in the place of its earlier form, if that was recorded."""
        with self._adding:
            self.events[:] = [new if x is old else x for x in self.events]

    def drop(self, gone: Container[int]) -> None:
        """Remove the events with these ids."""
        with self._adding:
            self.events[:] = [x for x in self.events if id(x) not in gone]

    # ---- one thread ----

    @property
    def is_quiet(self) -> bool:
        """Whether the watch itself works in this thread: what it calls is no event."""
        return self._here.is_quiet

    @property
    def stepping(self) -> Any:
        """The watch of the optimizer that steps now in this thread: what it calls is a part of the step."""
        return self._here.stepping

    @stepping.setter
    def stepping(self, watch: Any) -> None:
        self._here.stepping = watch

    @contextlib.contextmanager
    def hushed(self) -> Iterator[None]:
        """A block that calls code of the script whose own calls are no events."""
        here = self._here
        before, here.is_quiet = here.is_quiet, True
        try:
            yield
        finally:
            here.is_quiet = before

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """A block of the watch's own work on its books: its time is not the script's, and its calls are no events."""
        here = self._here
        is_first, start = not here.is_quiet, time.perf_counter()
        if not self._books.acquire(timeout=_WAIT):
            raise TimeoutError("another thread keeps the books of the watch")
        try:
            with self.hushed():
                yield
        finally:
            self._books.release()
            if is_first:
                here.own += time.perf_counter() - start

    def since_the_last_step(self) -> float:
        """The seconds of the script in this thread since this was asked last."""
        here, now = self._here, time.perf_counter()
        seconds = now - here.stepped - here.own
        here.stepped, here.own = now, 0.0
        return seconds

    # ---- the end of the script ----

    def interrupt(self) -> None:
        """End the script, from another thread than its main one; once."""
        with self._adding:
            if self._to_interrupt:
                self._to_interrupt = False
                threads.interrupt()

    def is_over(self) -> bool:
        """Whether the script has to end. The main thread asks when it has left the script; then nothing interrupts it."""
        with self._adding:
            self._to_interrupt = False
        return self._is_enough()

    def end_threads(self, is_stopped: bool) -> None:
        """Let the script's threads end too, at their next event, if the doctor has ended the script."""
        if is_stopped:
            threads.join(self._idents)

    # ---- what was replaced ----

    def run_eagerly(self, undo: Callable[[], Any]) -> None:
        """Compiled code runs eagerly from now on: until the end, or a fault of the watch."""
        self.undo(undo)
        self.guard.when_off.append(undo)

    def compiles(self, what: str, where: Place) -> None:
        """Note that the script compiles something, which runs eagerly."""
        self.ran_eagerly.setdefault(what, where)

    def replace(self, owner: Any, name: str, make: Make) -> None:
        """Put a function that watches in the place of one, until :meth:`restore`. A name that is missing is left out."""
        is_type = isinstance(owner, type)
        original = vars(owner).get(name) if is_type else getattr(owner, name, None)
        if callable(original):
            setattr(owner, name, self.guard.around(original, make, is_method=is_type))
            self._undo.append(lambda: setattr(owner, name, original))

    def undo(self, function: Callable[[], None]) -> None:
        """Call a function in :meth:`restore`."""
        self._undo.append(function)

    def restore(self) -> None:
        """Put everything back."""
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                self.guard.fail(error)

    def close(self) -> None:
        """End the watch: compare the processes, name the parameters, put everything back."""
        with self.quietly():
            for close in self.closers:
                close()
        self._is_closed = True
        self.restore()

    def leave_forks(self) -> None:
        """Watch nothing in the processes that the script forks: such a process runs to its end, and reports nothing."""
        if not hasattr(os, "register_at_fork"):
            return
        here = weakref.ref(self)  # a function at a fork stays for the life of the process

        def in_child() -> None:
            recorder = here()
            if recorder is not None:
                recorder.guard.is_off, recorder.is_first = True, False
                recorder.closers.clear()
                recorder.last.clear()
                recorder.restore()

        os.register_at_fork(after_in_child=in_child)

    def say(self, text: str) -> None:
        """A line for the user, about the doctor itself."""
        sys.stderr.write(f"gradclip doctor: {text}\n")
