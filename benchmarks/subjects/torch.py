"""torch: its three functions, and torch.compile of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of compilers beside the measurement
os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")  # these caches do not see that gradclip's sources have changed
os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")

import numpy as np
import torch

from benchmarks.case import EAGER, Function, Key
from benchmarks.subjects.base import Call, NoDeviceError, Sample, Subject
from benchmarks.subjects.natives import functions
from gradclip.natives import torch as natives

MODES = (EAGER, "compile")


class TorchSubject(Subject):
    name = "torch"
    modes = MODES
    compiler = "inductor"  #: the backend of torch.compile

    def __init__(self, device: str) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise NoDeviceError("torch sees no CUDA device")
        self.device = device
        self.threads = torch.get_num_threads()

    def versions(self) -> dict[str, str]:
        return {"torch": str(torch.__version__)}

    def functions(self) -> Sequence[Function]:
        return tuple(functions(natives.NATIVES, MODES))

    def native_norm(self, order: float) -> tuple[str, Callable[[Any], Any]]:
        return "tensors", lambda tensors: torch.nn.utils.get_total_norm(tensors, order)

    def make(self, array: np.ndarray, dtype: str) -> Any:
        return torch.from_numpy(array.copy()).to(self.device, getattr(torch, dtype))

    def copy(self, x: Any) -> Any:
        return x.clone()

    def hold(self, x: Any) -> tuple[Any, Any]:
        parameter = torch.nn.Parameter(torch.empty_like(x))
        parameter.grad = x
        return parameter, x

    def restore(self, sample: Sample) -> None:
        torch._foreach_copy_(sample.tensors, sample.pristine)
        self._wait()

    def read(self, x: Any) -> np.ndarray:
        values: np.ndarray = x.detach().cpu().double().numpy()
        return values

    def dtype(self, x: Any) -> str:
        return str(x.dtype).removeprefix("torch.")

    def call(self, function: Callable[[Any], Any], mode: str, form: str, sample: Sample) -> Call:
        given = sample.form(form)
        run = function if mode == EAGER else torch.compile(function, fullgraph=True, dynamic=False, backend=self.compiler)
        return self._waiting(lambda: run(given))

    def leaves_out(self, key: Key) -> bool:
        # the C++ for 2,000 gradients, which inductor writes one by one, takes minutes each
        thousands = key.mode != EAGER and key.gradients == "vectors"
        return super().leaves_out(key) or (thousands and key.function != "clip_grad_norm_")

    def forget(self) -> None:
        torch.compiler.reset()

    def probes(self, size: int) -> dict[str, Call]:
        x, y = torch.ones(size, device=self.device), torch.ones(size, device=self.device)
        calls: dict[str, Call] = {
            "read": lambda: torch.dot(x, x),
            "scale": lambda: x.mul_(0.999),
            "copy": lambda: torch.mul(x, 0.999, out=y),
            "fresh": lambda: x * 0.999,
        }
        return {name: self._waiting(call) for name, call in calls.items()}

    def allocated(self, call: Call) -> int | None:
        if self.device == "cpu":
            return None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return int(torch.cuda.max_memory_allocated()) - int(before)

    def _waiting(self, call: Call) -> Call:
        """The call itself on the host, where a function returns when its result is there."""
        if self.device == "cpu":
            return call

        def wait() -> Any:
            result = call()
            self._wait()
            return result

        return wait

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


subject = TorchSubject
