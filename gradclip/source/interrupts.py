"""Signals that end a run: they wait until a file is whole, and each gives an exit code that scripts can use."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Ended", "ending", "raise_lost", "signals_wait"]

#: Ctrl-C comes last, so that the others have their handlers back before it can raise
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK", "SIGINT") if hasattr(signal, name))


#: the signals that have raised Ended: a library's ``finally`` may put another error in its place
_raised: list[int] = []


class Ended(KeyboardInterrupt):
    """A signal that ends the run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number  #: as a shell says it: 130 for Ctrl-C, 143 for SIGTERM


@contextmanager
def ending() -> Iterator[None]:
    """Within it, each of the signals raises :class:`Ended`; without, all but Ctrl-C would end the process on the spot."""

    def end(number: int, frame: FrameType | None) -> None:
        _raised.append(number)
        raise Ended(number)

    with _handled(end):
        try:
            yield
            raise_lost()
        except Exception:
            raise_lost()
            raise
        finally:
            _raised.clear()


def raise_lost() -> None:
    """Raise :class:`Ended` if a signal has raised it, and the run goes on."""
    if _raised:
        raise Ended(_raised[0])


@contextmanager
def signals_wait() -> Iterator[None]:
    """Within it, the signals wait; at its end they have their usual effect."""
    noted: list[int] = []
    try:
        with _handled(lambda number, frame: noted.append(number)):
            yield
    finally:
        for number in noted[:1]:
            signal.raise_signal(number)


@contextmanager
def _handled(handler: signal._HANDLER) -> Iterator[None]:
    """Replace the handlers, in the main thread: Python allows no other. An ignored signal stays ignored, as ``nohup`` asks."""
    before: dict[int, signal._HANDLER] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                now = signal.getsignal(number)
                if now not in (signal.SIG_IGN, None):
                    before[number] = now
                    signal.signal(number, handler)
        yield
    finally:
        for number, now in before.items():
            signal.signal(number, now)
