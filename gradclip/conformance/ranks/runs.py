"""A target on several ranks, each a process. After a deadlock or a crash new processes go on with the next vector.

A deadlock shows only in its time limit. So new processes go on beside ranks that are late, and several deadlocks are waited
for at the same time.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

from gradclip.conformance import children
from gradclip.conformance.cases import Case
from gradclip.conformance.children import Message
from gradclip.conformance.engine import failed, unclaimed
from gradclip.conformance.processes import MOST_CRASHES, Run, Task, report_of
from gradclip.conformance.ranks import worker
from gradclip.conformance.ranks.fits import FITS
from gradclip.conformance.result import Report
from gradclip.conformance.specification import Specification
from gradclip.conformance.vector import Finding

__all__ = ["run_on_ranks"]

_STARTING = 300.0  # seconds for the import of the framework
_GRACE = 5.0  # seconds for the other ranks after one has failed
_PATIENCE = 2.0  # seconds in which ranks answer that do not wait for each other; then the next vector begins beside them
_LATE = 4  # groups that are waited for beside
_METHOD = "forkserver" if sys.platform == "linux" else "spawn"  # Windows has no fork, and on macOS it is not safe
_OPTIONAL = ("norm_type", "shards", "group")  # the features that a function's signature shows; it has all others


class Group:
    """The processes of all ranks, each with a file in the folder for what its framework prints."""

    def __init__(self, tasks: Sequence[Message], folder: Path) -> None:
        self._logs = [folder / f"{rank}.log" for rank in range(len(tasks))]
        self._ended: dict[int, Message] = {}
        self._found: dict[int, Message] = {}  #: the answers to the last order
        with _starting() as context:
            pipes = [context.Pipe() for _ in tasks]
            self._pipes = [ours for ours, _ in pipes]
            given = zip(tasks, pipes, self._logs, strict=True)
            self._processes = [context.Process(target=worker.main, args=(task, pipe, log)) for task, (_, pipe), log in given]
            for process, (_, pipe) in zip(self._processes, pipes, strict=True):
                process.start()
                pipe.close()

    def ask(self, order: Message) -> None:
        """Give the same order to all ranks."""
        self._found = dict(self._ended)
        for pipe in self._pipes:
            with suppress(OSError):  # it has ended, as its answer will say
                pipe.send(order)

    def answers(self, seconds: float) -> dict[int, Message]:
        """The answer of each rank. Those that do not answer in time are left out; one that has ended answers "end".

        A second call waits on for those that were left out.
        """
        found, deadline = self._found, time.monotonic() + seconds
        while len(found) < len(self._pipes):
            waited = [pipe for rank, pipe in enumerate(self._pipes) if rank not in found]
            ready = connection.wait(waited, max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for rank, message in [(rank, self._answer(rank)) for rank, pipe in enumerate(self._pipes) if pipe in ready]:
                found[rank] = message
                if message.keys() & {"end", "raised"}:  # the others may wait for it for ever
                    deadline = min(deadline, time.monotonic() + _GRACE)
        return found

    def _answer(self, rank: int) -> Message:
        try:
            message: Message = self._pipes[rank].recv()
        except (EOFError, OSError):
            self._processes[rank].join()
            status = self._processes[rank].exitcode or 0
            message = {"end": children.ending(status, self._logs[rank].read_text("utf-8", "replace"))}
        if "end" in message:
            self._ended[rank] = message
        return message

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.join()
            pipe.close()


@contextmanager
def _starting() -> Iterator[Any]:
    """What starts the processes. A server imports the framework once, which takes seconds, and forks each rank."""
    context: Any = multiprocessing.get_context(_METHOD)
    before = dict(os.environ)
    os.environ.update(children.variables_of({"OMP_NUM_THREADS": "1"}))
    try:
        if _METHOD == "forkserver":
            context.set_forkserver_preload(["gradclip.conformance.ranks.preload"])
        yield context  # the first process starts the server, with these variables
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@dataclass(frozen=True)
class _Late:
    """Ranks that have not answered yet."""

    at: int  #: the case
    group: Group
    until: float  #: when its time is over


@dataclass
class RankRun(Run):
    """The groups of one target, in turn."""

    size: int = 2
    _optional: Sequence[str] = ()
    _group: Group | None = None
    _renewed: int = 0  #: the number of the ranks' process group, which is new after an error
    _crashes: int = 0
    _late: list[_Late] = field(default_factory=list)  #: in the order of their cases

    def __call__(self) -> None:
        begun = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory() as folder:
                for index, case in enumerate(self.task.plan.cases):
                    self.at = index
                    if self._group is None and not self._start(folder):
                        break
                    self._run(case)
                    self.done += 1
                    self.changed(self)
                self._close()
                while self._late:
                    self._await()
        finally:
            self._close()
            for one in self._late:
                one.group.close()
        self.ended = True
        self.entry["seconds"] = time.perf_counter() - begun
        self.changed(self)

    def _start(self, folder: str) -> bool:
        """Start the ranks; whether all of them can run the target."""
        own = Path(tempfile.mkdtemp(dir=folder))
        given = {**self.task.as_json(), "target": self.specification.text, "ranks": self.size}
        given |= {"folder": str(own), "group": self._renewed}
        self._group = Group([{**given, "rank": rank} for rank in range(self.size)], own)
        found = self._group.answers(_STARTING)
        wrong = [message for message in found.values() if "ready" not in message]
        if wrong or len(found) < self.size:
            self.usage = next((message["usage"] for message in wrong if "usage" in message), ())
            text = str(wrong[0].get("end")) if wrong else f"it did not start within {_STARTING:g} seconds"
            self.name = self.name or self.specification.text
            self.results.append(failed(self.name, "target", "process", f"it cannot be loaded: {text}"))
            return False
        self.name, self._optional = found[0]["ready"], found[0]["optional"]
        self.entry |= {"versions": found[0]["versions"], "device": "cpu"}
        return True

    def _close(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None

    def _run(self, case: Case) -> None:
        lacking = [need for need in case.needs if need in _OPTIONAL and need not in self._optional]
        if lacking:
            self.results.append(unclaimed(self.name, case, lacking))
            return
        if self._crashes == MOST_CRASHES:
            self.results.append(self._judged(case, Finding(f"not tried: ranks ended or hung {MOST_CRASHES} times", "crashed")))
            return
        assert self._group is not None
        self._group.ask({"case": self.at, "group": self._renewed})
        begun = time.monotonic()
        found = self._group.answers(min(_PATIENCE, self.task.seconds))
        if len(found) < self.size:
            if not any(message.keys() & {"end", "raised"} for message in found.values()):
                self._go_on(begun + self.task.seconds)
                return
            found = self._group.answers(_GRACE)
        self.results.append(self._judged(case, _finding(found, self.size, self.task.seconds)))
        if len(found) < self.size or any("end" in message for message in found.values()):
            self._crashes += 1
            self._close()
        elif any("raised" in message for message in found.values()):
            self._renewed += 1

    def _go_on(self, until: float) -> None:
        """Leave the ranks to themselves, and begin anew beside them."""
        assert self._group is not None
        self._late.append(_Late(self.at, self._group, until))
        self._group = None
        self._crashes += 1
        if len(self._late) > _LATE:
            self._await()

    def _await(self) -> None:
        """Take what has come of the case that has waited longest: the results of all before it are there."""
        one = self._late[0]
        found = one.group.answers(max(0.0, one.until - time.monotonic()))
        one.group.close()
        del self._late[0]
        case = self.task.plan.cases[one.at]
        self.results.insert(one.at, self._judged(case, _finding(found, self.size, self.task.seconds)))


def _finding(found: dict[int, Message], size: int, seconds: float) -> Finding:
    """What is wrong on the ranks, the worst first."""
    late = [rank for rank in range(size) if rank not in found]
    for key, reason, text in (("end", "crashed", "the process "), ("raised", "raised", "")):
        by_text: dict[str, list[int]] = {}
        for rank in sorted(found):
            if key in found[rank]:
                by_text.setdefault(f"{text}{found[rank][key]}", []).append(rank)
        if by_text:
            parts = [f"{_named(ranks)}: {what}" for what, ranks in by_text.items()]
            parts += [f"{_named(late)}: still waiting"] if late else []
            return Finding("; ".join(parts), reason)
    if late:
        others = f", {_named(sorted(found))} did" if found else ""
        return Finding(f"{_named(late)} did not end within {seconds:g} seconds{others}: a deadlock", "hung")
    wrong = [rank for rank in range(size) if found[rank]["wrong"]]
    norms = [found[rank]["norm"] for rank in range(size)]
    message = f"rank {wrong[0]}: {found[wrong[0]]['wrong']}" if wrong else ""
    done = [fit.phrase for name, fit in FITS.items() if wrong and all(name in (found[rank]["fits"] or ()) for rank in wrong)]
    message += f" ({', or '.join(done)})" if done else ""
    if len(set(norms)) > 1:
        shown = ", ".join("None" if n is None else str(float.fromhex(n) if isinstance(n, str) else n) for n in norms)
        message = "; ".join(filter(None, [message, f"the ranks have different norms: {shown}"]))
    told = found[wrong[0] if wrong else 0]
    return Finding(message, "", told["got"], float(told["ulps"]), [told["expected"]])


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def run_on_ranks(specifications: Sequence[Specification], task: Task, size: int, changed: Callable[[Run], None]) -> Report:
    """Run the task on all targets, one after the other, in this thread: an interrupt ends the processes.

    Raises:
        ValueError: for an error in the command that only a target's process could find.
    """
    runs = [RankRun(specification, task, changed, size=size) for specification in specifications]
    for run in runs:
        run()
    return report_of(runs, task)
