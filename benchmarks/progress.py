"""Progress on standard error: a bar on a terminal with rich, else a line for each case."""

from __future__ import annotations

import sys
from importlib import util
from types import TracebackType
from typing import Any

from benchmarks.run import Progress

__all__ = ["Shown", "shown"]


class Shown(Progress):
    """Progress as lines, in a ``with`` statement."""

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing to clear away."""

    def start(self, name: str, steps: int) -> None:
        _say(f"{name}: {steps} cases" if steps else f"{name}: starting")

    def step(self, what: str) -> None:
        _say(what)

    def end(self, name: str, why: str | None) -> None:
        _say(f"{name}: {why or 'done'}")


class Bar(Shown):
    """A bar for the framework that is running."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        console = Console(stderr=True)
        columns = ("{task.fields[name]:<10}", BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Bars(*columns, TextColumn("{task.description}", markup=False), console=console)
        self._task: Any = None

    def __enter__(self) -> Bar:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def start(self, name: str, steps: int) -> None:
        if not steps or self._task is None:
            self._task = self._bars.add_task("starting", name=name, total=steps or None)
        else:
            self._bars.update(self._task, total=steps)

    def step(self, what: str) -> None:
        self._bars.update(self._task, description=what)

    def done(self) -> None:
        self._bars.advance(self._task)

    def end(self, name: str, why: str | None) -> None:
        if self._task is None or why:
            self._bars.console.print(f"{name}: {why}", markup=False, highlight=False)
        if self._task is not None:
            self._bars.update(self._task, description="")
            self._bars.stop_task(self._task)


def shown() -> Shown:
    """The progress that fits standard error."""
    return Bar() if sys.stderr.isatty() and util.find_spec("rich") is not None else Shown()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
