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
        self._results: queue.SimpleQueue[tuple[int, Any, str]] = queue.SimpleQueue()
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
            try:
                rank, results[rank], text = self._results.get(timeout=PATIENCE)
                left -= 1
            except queue.Empty:
                text = "a deadlock: ranks wait for each other"
            if text:
                failed = failed or text
                threaded.ProcessLocalGroup.exception_handle(None)  # wakes the ranks that wait
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
            result, text = None, ""
            try:
                result = function()
            except SystemExit:
                text = ""  # another rank failed
            except BaseException:
                text = f"rank {rank}: {traceback.format_exc()}"
            self._results.put((rank, result, text))
        dist.destroy_process_group()


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
