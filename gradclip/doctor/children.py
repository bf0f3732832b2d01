"""The processes that a script starts, as by ``torch.multiprocessing.spawn``: each has a watch, and the first one tells."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradclip.doctor import imports
from gradclip.doctor.guard import Fault
from gradclip.doctor.launch import LOCALHOST, World, free_ports
from gradclip.doctor.recorder import EnoughSteps, Recorder

__all__ = ["Children"]

_KEPT = ("events", "names", "ranks", "others", "frameworks", "ran_eagerly")  #: of a record


class Children:
    """The record of the processes that one call starts, as far as they tell it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._folder: Any = None
        self._path: Path | None = None

    def watching(self, function: Callable[..., Any], size: int) -> Callable[..., Any]:
        """The same function of a rank and more, for processes of their own."""
        self._folder = tempfile.TemporaryDirectory()
        self._recorder.last.append(self._folder.cleanup)
        self._path = Path(self._folder.name, "record")
        (port,) = free_ports(1)
        return _Watched(function, size, int(port), self._path, self._recorder.steps, self._recorder.to_run_eagerly)

    def take(self) -> bool:
        """Take the record of the first of them, where this process made no step; whether the doctor has ended them."""
        recorder = self._recorder
        if self._path is None or recorder.done or not self._path.exists():
            return False
        kept = pickle.loads(self._path.read_bytes())
        for name in _KEPT:
            setattr(recorder, name, kept[name])
        fault: Fault | None = kept["fault"]
        recorder.guard.fault = recorder.guard.fault or fault
        return bool(kept["is_stopped"])


@dataclass(frozen=True, slots=True)
class _Watched:
    """A function that is called in another process, with its rank first."""

    function: Callable[..., Any]
    size: int
    port: int
    path: Path
    steps: int
    to_run_eagerly: bool

    def __call__(self, rank: int, *args: Any) -> Any:
        recorder = Recorder(self.steps, to_run_eagerly=self.to_run_eagerly)
        recorder.world, recorder.is_first = World(rank, self.size, LOCALHOST, self.port, is_own=True), not rank
        beside, is_stopped = recorder.guard.beside, False
        for start in (recorder.leave_forks, lambda: imports.start(recorder)):
            beside(start)()
        try:
            return self.function(rank, *args)
        except EnoughSteps:
            is_stopped = True
            return None
        finally:
            beside(recorder.close, recorder.restore)()
            if not rank:
                kept = {name: getattr(recorder, name) for name in _KEPT}
                kept |= {"fault": recorder.guard.fault, "is_stopped": is_stopped}
                beside(lambda: self.path.write_bytes(pickle.dumps(kept)))()
            for last in recorder.last:
                with contextlib.suppress(Exception):
                    last()
