"""Where every fault of the doctor's own code ends: the watch goes off, and the script runs as without the doctor."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

from gradclip.doctor.places import NOWHERE, Place, place

__all__ = ["Fault", "Guard"]

Make = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Fault:
    """What ended the watch."""

    error: str  #: the exception
    inside: str  #: the line of the doctor's own code
    where: Place  #: the line of the script


class Guard:
    """Runs the code that watches. The script never sees an exception of that code: the first one ends the watch."""

    def __init__(self) -> None:
        self.is_off = False  #: nothing is watched any more
        self.fault: Fault | None = None
        #: whether a compiler reads the code now, and would read this file too
        self.is_compiling: Callable[[], bool] = lambda: False
        self.when_off: list[Callable[[], Any]] = []  #: what a fault undoes at once
        self._lock = threading.Lock()

    def around(self, original: Callable[..., Any], make: Make, *, is_method: bool = False) -> Callable[..., Any]:
        """A function in the place of one that the script calls.

        Args:
            original: the script's function; it runs once in each call, whatever fails around it.
            make: from the original: the function that watches it.
            is_method: whether the first argument is an object with this method.
        """

        @functools.wraps(original)
        def run(*args: Any, **options: Any) -> Any:
            if self.is_off or self.is_compiling():
                return original(*args, **options)
            call = _Call(original, args, options, kept_from=int(is_method))
            try:
                return make(call)(*call.again(), **call.options_again())
            except Exception as error:
                if error is call.error:
                    raise
                self.fail(error)
            return call.finish()

        return run

    def beside(self, function: Callable[..., Any], when_off: Callable[[], Any] = lambda: None) -> Callable[..., Any]:
        """A function that only watches, for a framework or Python to call; ``when_off`` is called in its place at the end."""

        @functools.wraps(function)
        def run(*args: Any, **options: Any) -> Any:
            if not (self.is_off or self.is_compiling()):
                try:
                    return function(*args, **options)
                except Exception as error:
                    self.fail(error)
            return when_off()

        return run

    def fail(self, error: BaseException) -> None:
        """Take the watch off, because of an exception of its own."""
        with self._lock:
            self.is_off = True
            if self.fault is not None:
                return
            self.fault = Fault(_first_line(error), _inside(error), NOWHERE)
        for undo in self.when_off:
            with contextlib.suppress(Exception):
                undo()
        with contextlib.suppress(Exception):  # the place in the script is told if nothing fails there as well
            self.fault = Fault(self.fault.error, self.fault.inside, place(""))
            sys.stderr.write("gradclip doctor: the watch failed and is off; the script goes on without it\n")


class _Call:
    """One call of a function of the script: what came of it, and arguments that can be read again."""

    def __init__(self, original: Callable[..., Any], args: Any, options: Any, kept_from: int) -> None:
        self._original = original
        self._items = [x if i < kept_from else _kept(x) for i, x in enumerate(args)]
        self._options = {name: _kept(x) for name, x in options.items()}
        self._is_started = self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None

    @property
    def error(self) -> BaseException | None:
        """The script's own exception: from the function, or from an iterator that it was called with."""
        kept = [x for x in (*self._items, *self._options.values()) if isinstance(x, _Kept)]
        return self._error or next((x.error for x in kept if x.error is not None), None)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._is_started:  # a trial on copies
            return self._original(*args, **options)
        self._is_started = True
        try:
            self._result = self._original(*args, **options)
        except BaseException as error:
            self._error = error
            raise
        self._is_done = True
        return self._result

    def again(self) -> list[Any]:
        """The arguments; an iterator begins anew."""
        return [x.again() if isinstance(x, _Kept) else x for x in self._items]

    def options_again(self) -> dict[str, Any]:
        return {name: x.again() if isinstance(x, _Kept) else x for name, x in self._options.items()}

    def finish(self) -> Any:
        """The result of the script's call, which is made now if it was not."""
        if self.error is not None:
            raise self.error
        return self._result if self._is_done else self._original(*self.again(), **self.options_again())


class _Kept:
    """An iterator whose items are kept."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source, self._items = source, list[Any]()
        self.error: BaseException | None = None  #: the iterator's own

    def again(self) -> Iterator[Any]:
        found = self._all()
        return found if isinstance(self._source, GeneratorType) else itertools.chain(found)

    def _all(self) -> Iterator[Any]:
        yield from self._items
        while True:
            try:
                item = next(self._source)
            except StopIteration:
                return
            except BaseException as error:
                self.error = error
                raise
            self._items.append(item)
            yield item


def _kept(x: Any) -> Any:
    return _Kept(x) if isinstance(x, Iterator) else x


def _first_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip().split("\n")[0]


def _inside(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "an unknown line"
