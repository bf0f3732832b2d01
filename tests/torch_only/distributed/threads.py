"""Up to 8 ranks in one process, each a thread, by torch's own process group for tests: a case takes milliseconds."""

from __future__ import annotations

import contextlib
import queue
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg as threaded

PATIENCE = 300  #: seconds after which ranks that wait for each other are in a deadlock


class Ranks:
    """Ranks that run one function after the other, together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._store = dist.HashStore()
        self._calls: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(size)]
        self._results: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, args=(rank,), daemon=True) for rank in range(size)]
        for thread in self._threads:
            thread.start()

    def run(self, function: Callable[[], Any]) -> tuple[list[Any], str]:
        """Return what the function returns on each rank, and the traceback of the first rank that fails, or ""."""
        for calls in self._calls:
            calls.put(function)
        results: list[Any] = [None] * self.size
        failed, left = "", self.size
        while left:
            text = ""
            try:
                rank, results[rank], error = self._results.get(timeout=PATIENCE)
                left -= 1
                if error:  # its text is made here: in several threads at once, Python 3.11 at times cannot (cpython#106905)
                    text = f"rank {rank}: {''.join(traceback.format_exception(error))}"
            except queue.Empty:
                text = "a deadlock: ranks wait for each other"
            if text:
                failed = failed or text
                wake()
        threaded.ProcessLocalGroup.reset()
        return results, failed

    def close(self) -> None:
        for calls in self._calls:
            calls.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, rank: int) -> None:
        dist.init_process_group("threaded", rank=rank, world_size=self.size, store=self._store)
        while (function := self._calls[rank].get()) is not None:
            result, error = None, None
            try:
                result = function()
            except SystemExit:
                pass  # another rank failed
            except BaseException as raised:
                error = raised
            self._results.put((rank, result, error))
        dist.destroy_process_group()


def wake() -> None:
    """End the collectives that ranks wait in.

    The group's own ``exception_handle`` reads the dictionary of them without its lock, while other ranks still write into it.
    """
    group = threaded.ProcessLocalGroup
    group._terminate.set()
    with group._coll_lock:
        waiting = list(group._cur_coll_on_pgs.values())
    for collective in waiting:
        for condition in (collective._start_cond, collective._done_cond):
            with condition:
                condition.notify_all()


@contextlib.contextmanager
def ranks(size: int) -> Iterator[Ranks]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    threaded._install_threaded_pg()
    made = Ranks(size)
    try:
        yield made
    finally:
        made.close()
        threaded._uninstall_threaded_pg()
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        torch.set_num_threads(threads)
