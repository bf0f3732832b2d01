"""Which line of the user's code wrote a gradient: Python's trace of lines, between a backward pass or a clip and the step."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from gradclip.doctor.guard import Guard
from gradclip.doctor.places import Place, is_user

__all__ = ["Lines"]

# a loop over data in Python must not become slow
_MOST = 20_000  #: lines in one go
_SECONDS = 0.25  #: of looks in one go; half as many after each go that needed more


class Lines:
    """Calls ``looked(place)`` after each line of the user's code, with the line that has just run; it says if that line wrote.

    It does nothing while another trace is on, as under a debugger or coverage. A trace is of one thread.
    """

    def __init__(self, guard: Guard, looked: Callable[[Place], bool]) -> None:
        self.looked = looked
        self.trace_call, self.trace_line = (guard.beside(x, lambda: sys.settrace(None)) for x in (self._call, self._line))
        self.is_on = False
        self._last: Place | None = None
        self._left = 0
        self._seconds, self._spent = _SECONDS, 0.0
        self._frames: list[FrameType] = []

    def start(self) -> None:
        if self.is_on or sys.gettrace() is not None:
            return
        self.is_on, self._last, self._left, self._spent = True, None, _MOST, 0.0
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if is_user(frame.f_code.co_filename):
                frame.f_trace = self.trace_line
                self._last = self._last or Place(frame.f_code.co_filename, frame.f_lineno)
                self._frames.append(frame)
            frame = frame.f_back
        sys.settrace(self.trace_call)

    def stop(self) -> None:
        if not self.is_on:
            return
        self.is_on = False
        sys.settrace(None)
        for frame in self._frames:
            frame.f_trace = None
        self._frames.clear()

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self.trace_line if is_user(frame.f_code.co_filename) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self.is_on:
            return None
        if self._last is not None:
            self._look(self._last)
        self._last = Place(frame.f_code.co_filename, frame.f_lineno)
        self._left -= 1
        if self._left <= 0 or self._spent > self._seconds:
            self._seconds /= 2
            self.stop()
        return self.trace_line

    def _look(self, last: Place) -> None:
        start = time.perf_counter()
        if self.looked(last):
            self._seconds, self._spent = _SECONDS, 0.0
        else:
            self._spent += time.perf_counter() - start
