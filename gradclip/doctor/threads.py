"""Which thread works on which parameters: one thread must not take what another does for its own."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Set

from gradclip.doctor.events import NO_IDS, Ids
from gradclip.doctor.places import NOWHERE, Place

__all__ = ["Hands", "Leaving", "hear", "interrupt", "is_of_python", "join"]

_asked = threading.Event()  # the doctor itself interrupts the script
_LAST = 5.0  #: seconds that threads of the script have to end, when the doctor ends the script


def _others() -> list[threading.Thread]:
    """The threads that Python waits for when it ends."""
    main = threading.main_thread()
    return [x for x in threading.enumerate() if x is not main and x is not threading.current_thread() and not x.daemon]


def interrupt() -> None:
    """Interrupt the main thread, as Ctrl-C does; a signal also ends its wait for another thread."""
    _asked.set()
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def hear() -> None:
    """Let ``interrupt`` reach this thread where the process ignores Ctrl-C, as in the background of a shell's script."""
    _asked.clear()
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, _if_asked)


def _if_asked(*_: object) -> None:
    if _asked.is_set():
        raise KeyboardInterrupt


def join(idents: set[int]) -> None:
    """Wait for the threads with these idents that the watch has ended."""
    end = time.monotonic() + _LAST
    for thread in _others():
        if thread.ident in idents:
            thread.join(max(0.0, end - time.monotonic()))


class Leaving:
    """The end of this process after the doctor has ended the script: nothing that the script left behind delays or aborts it.

    It is made before the script, so that at the exit all that the script registered with ``atexit`` comes first.
    """

    def __init__(self) -> None:
        hear()
        self._status: int | None = None
        atexit.register(self._now)

    def at_exit(self, status: int) -> None:
        """Leave at the exit, and soon after the main thread's end, though some thread waits for something in vain."""
        self._status = status
        threading.Thread(target=self._soon, daemon=True).start()

    def _soon(self) -> None:
        threading.main_thread().join()
        time.sleep(_LAST)
        self._now()

    def _now(self) -> None:
        if self._status is not None:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(self._status)  # XLA aborts a process whose Python ends while a callback waits for it


def is_of_python(ident: int) -> bool:
    """Whether Python started a thread; a framework's engine has threads of its own."""
    return any(thread.ident == ident for thread in threading.enumerate())


class Hands:
    """The parameters that each thread has in hand: from its backward pass, or another event, to the end of its step.

    A look in one thread leaves out what another has in hand, unless the event names these parameters: one thread may make the
    gradients, and another clip them. It never touches what an open pass of another thread may write, which can crash torch.
    An engine runs hooks in threads of its own, which work for the thread of the pass.
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}  # parameter -> the thread of its last event
        self._held: set[int] = set()  # parameters between their first event and their step
        self._passes: dict[int, list[tuple[Place, Ids | None]]] = {}  # thread -> its open passes: where, and what they reach
        self._seen: set[int] = set()

    def thread(self) -> int:
        """The thread that runs now, or for which an engine's thread works."""
        ident = threading.get_ident()
        if self._passes and ident not in self._passes and ident not in self._seen and not is_of_python(ident):
            return next(reversed(self._passes))
        self._seen.add(ident)
        return ident

    @property
    def are_several(self) -> bool:
        """Whether more than one thread has had events."""
        return len(self._seen) > 1

    def take(self, params: Ids) -> None:
        """This thread works on these parameters."""
        self._last.update(dict.fromkeys(params, self.thread()))
        self._held.update(params)

    def release(self, params: Ids) -> None:
        """The step of these parameters is over."""
        self._held.difference_update(params)

    def mine(self, keys: Iterable[int], named: Set[int] = NO_IDS) -> list[int]:
        """Those that this thread may look at: its own, those that the event names, and those that no thread works on."""
        if not self.are_several:
            return list(keys)
        here, (barred, is_known) = self.thread(), self._barred()
        own = {key for key, thread in self._last.items() if thread == here}
        return [x for x in keys if x in named or (x not in barred and (x in own or (is_known and x not in self._held)))]

    def _barred(self) -> tuple[Ids, bool]:
        """What the open passes of other threads write, and whether all of it is known."""
        here = self.thread()
        others = [reached for thread, passes in self._passes.items() if thread != here for _, reached in passes]
        return NO_IDS.union(*(x for x in others if x is not None)), None not in others

    # ---- backward passes ----

    def open(self, where: Place, reached: Ids | None) -> None:
        """A pass begins, which makes the gradients of these parameters; None if that is not known."""
        self._passes.setdefault(self.thread(), []).append((where, reached))

    def passed(self) -> Ids:
        """What the innermost pass of this thread has written, as far as no other pass writes it still."""
        _, reached = self._passes[self.thread()][-1]
        return (reached or NO_IDS) - self._barred()[0]

    def close(self) -> None:
        here = self.thread()
        self._passes[here].pop()
        if not self._passes[here]:
            del self._passes[here]

    @property
    def is_in_pass(self) -> bool:
        return bool(self._passes.get(self.thread()))

    @property
    def pass_place(self) -> Place:
        """Where the innermost open pass of this thread began."""
        passes = self._passes.get(self.thread())
        return passes[-1][0] if passes else NOWHERE
