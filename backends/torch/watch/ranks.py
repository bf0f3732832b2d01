"""What several processes of ``gradclip doctor`` tell the first of them, at the end of the script and by no collective of it."""

from __future__ import annotations

import json
import os
from datetime import timedelta

import torch

from gradclip.backends.torch.slot.names import modules
from gradclip.backends.torch.watch.tensors import TorchWatch, marked
from gradclip.doctor.findings import Finding, diagnosis
from gradclip.doctor.launch import PORT
from gradclip.doctor.of_ranks import Measured, measured
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.replicas import Replicas
from gradclip.doctor.run import Run

__all__ = ["Ranks"]

_WAIT = timedelta(seconds=30)  #: for the other processes


class Ranks:
    """The processes, which meet where ``torchrun`` or ``gradclip doctor --ranks`` says."""

    def __init__(self, recorder: Recorder, watch: TorchWatch) -> None:
        self.recorder, self.watch = recorder, watch
        self.rank, self.size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self._store: torch.distributed.TCPStore | None = None
        if self.size < 2 or "MASTER_ADDR" not in os.environ:
            return
        watch.replicas = Replicas(marked)
        if PORT in os.environ and not self.rank:  # from the start: the script of another process may fail at once
            self._store = self._meet(is_master=True)

    def _meet(self, *, is_master: bool = False) -> torch.distributed.TCPStore:
        port = int(os.environ.get(PORT) or os.environ["MASTER_PORT"])
        options = {"is_master": is_master, "wait_for_workers": False}
        return torch.distributed.TCPStore(os.environ["MASTER_ADDR"], port, timeout=_WAIT, **options)

    def compare(self) -> None:
        """Give process 0 what all have measured and found."""
        recorder, replicas = self.recorder, self.watch.replicas
        if replicas is None:
            return
        self._note(replicas)
        mine = measured(Run(recorder.events, recorder.names), replicas.named(recorder.names))
        try:
            store = self._store or self._meet()
            if self.rank:
                found = [one.told() for one in diagnosis(recorder.events, recorder.names).findings]
                store.set(f"gradclip doctor {self.rank}", json.dumps([mine.told(), found]))
                recorder.last.append(lambda: store.get("gradclip doctor done"))
                recorder.is_first = False
                return
            told = {other: json.loads(store.get(f"gradclip doctor {other}")) for other in range(1, self.size)}
            recorder.ranks = {0: mine, **{other: Measured.heard(numbers) for other, (numbers, _) in told.items()}}
            recorder.others = {other: list(map(Finding.heard, found)) for other, (_, found) in told.items()}
            recorder.last.append(lambda: store.set("gradclip doctor done", "yes"))
        except (RuntimeError, ValueError) as error:
            recorder.say(f"the processes' norms cannot be compared: {str(error).splitlines()[0]}")

    def _note(self, replicas: Replicas) -> None:
        """Note the parameters of which PyTorch itself makes all processes' copies equal."""
        kind = getattr(torch.nn.parallel, "DistributedDataParallel", None)
        shared = [x for x in modules() if kind is not None and isinstance(x, kind) and x.process_group.size() == self.size]
        known = {id(parameter) for module in shared for parameter in module.parameters()}
        for key, course in replicas.courses.items():
            course.is_replica = key in known or hasattr(self.watch.known[key], "placements")
