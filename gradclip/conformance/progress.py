"""The progress of ``gradclip conformance`` on standard error. Needs rich."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gradclip.conformance.processes import Run

__all__ = ["Shown"]


class Shown:
    """A bar for each target on a terminal; elsewhere a line when it starts and one when it ends."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        names = TextColumn("{task.description}", markup=False)
        state = TextColumn("{task.fields[state]}", markup=False)
        bars = Progress(names, BarColumn(24), MofNCompleteColumn(), state, TimeElapsedColumn(), console=console)
        self._console, self._bars = console, bars if console.is_terminal else None
        self._tasks: dict[str, TaskID] = {}
        self._told: set[str] = set()

    def __enter__(self) -> Shown:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, run: Run) -> None:
        """Show the progress of a run."""
        if run.usage:  # an error in the command is printed alone
            return
        failures = sum(not result.conformant for result in run.results)
        if self._bars is None:
            self._say(run, failures)
            return
        name = run.name or run.specification.text
        task = self._tasks.get(run.specification.text)
        if task is None:
            task = self._bars.add_task(name, total=len(run.task.plan.cases), state="")
            self._tasks[run.specification.text] = task
        state = f"{failures} not as they should be" if failures else ""
        self._bars.update(task, description=name, completed=run.done, state=state)
        if run.ended:
            self._bars.stop_task(task)

    def _say(self, run: Run, failures: int) -> None:
        text = run.specification.text
        if run.ended:
            cases = f"{len(run.results)} cases in {run.entry['seconds']:.1f} s"
            line = f"{run.name or text}: {cases}, {failures} not as they should be"
            self._print(line)
        elif run.name and text not in self._told:
            self._told.add(text)
            self._print(f"{run.name}: running")

    def _print(self, line: str) -> None:
        """Print a line as it is: a target's name is a user's text."""
        self._console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
