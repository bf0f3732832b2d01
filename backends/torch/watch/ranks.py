"""What several processes of ``gradclip doctor`` tell the first of them, at the end of the script and by no collective of it."""

from __future__ import annotations

import json
from datetime import timedelta

import torch

from gradclip.backends.torch.slot.names import modules
from gradclip.backends.torch.watch.tensors import TorchWatch, marked
from gradclip.doctor.findings import Finding, diagnosis
from gradclip.doctor.launch import World, world
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
        self._store: torch.distributed.TCPStore | None = None
        self._world = recorder.world or world()
        if self._world is None or self._world.size < 2:
            return
        watch.replicas = Replicas(marked)
        if self._world.is_own and not self._world.rank:  # from the start: the script of another process may fail at once
            self._store = self._meet(self._world, is_master=True)

    def _meet(self, world: World, *, is_master: bool = False) -> torch.distributed.TCPStore:
        options = {"is_master": is_master, "wait_for_workers": False}
        return torch.distributed.TCPStore(world.address, world.port, timeout=_WAIT, **options)

    def compare(self) -> None:
        """Give process 0 what all have measured and found."""
        recorder, replicas, world = self.recorder, self.watch.replicas, self._world
        if replicas is None or world is None:
            return
        self._note(replicas, world.size)
        mine = measured(Run(recorder.events, recorder.names), replicas.named(recorder.names))
        try:
            store = self._store or self._meet(world)
            if world.rank:
                found = [one.told() for one in diagnosis(recorder.events, recorder.names).findings]
                store.set(f"gradclip doctor {world.rank}", json.dumps([mine.told(), found]))
                recorder.last.append(lambda: store.get("gradclip doctor done"))
                recorder.is_first = False
                return
            told = {other: json.loads(store.get(f"gradclip doctor {other}")) for other in range(1, world.size)}
            recorder.ranks = {0: mine, **{other: Measured.heard(numbers) for other, (numbers, _) in told.items()}}
            recorder.others = {other: list(map(Finding.heard, found)) for other, (_, found) in told.items()}
            recorder.last.append(lambda: store.set("gradclip doctor done", "yes"))
        except (RuntimeError, ValueError) as error:
            recorder.say(f"the processes' norms cannot be compared: {str(error).splitlines()[0]}")

    def _note(self, replicas: Replicas, size: int) -> None:
        """Note the parameters of which PyTorch itself makes all processes' copies equal."""
        kind = getattr(torch.nn.parallel, "DistributedDataParallel", None)
        shared = [x for x in modules() if kind is not None and isinstance(x, kind) and x.process_group.size() == size]
        known = {id(parameter) for module in shared for parameter in module.parameters()}
        for key, course in replicas.courses.items():
            course.is_replica = key in known or hasattr(self.watch.known[key], "placements")
