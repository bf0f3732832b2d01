"""Paddle: the three objects that fit an optimizer, and the two functions of paddle.nn.utils."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Paddle warns while it is imported, of a missing ccache
    import paddle

from benchmarks.case import EAGER, Function, Kind
from benchmarks.subjects.base import Call, NoDeviceError, Sample, Subject
from benchmarks.subjects.natives import functions
from gradclip.backends.host.threads import allowed
from gradclip.natives import paddle as natives

MODES = (EAGER, "static")


class _Parameter:
    """A stand-in for the parameter of a gradient, with the members that a clip reads in a program."""

    need_clip = True

    def is_dist_dense_tensor_type(self) -> bool:
        """Whether it is spread over processes."""
        return False


_STANDS_IN = _Parameter()


def _grads(result: Any) -> list[Any]:
    """The gradients of pairs, or of a program's result, which has only gradients."""
    return [x[1] if isinstance(x, tuple) else x for x in result]


def _as_used(function: Function) -> Function:
    """A clip of pairs also works in programs, and that by the global norm may write; a clip of parameters is eager."""
    if function.form == "pairs":
        return replace(function, in_place=function.kind is Kind.GLOBAL, grads=_grads)
    return replace(function, modes=(EAGER,))


class PaddleSubject(Subject):
    name = "paddle"
    modes = MODES

    def __init__(self, device: str) -> None:
        if device == "cuda" and not paddle.is_compiled_with_cuda():
            raise NoDeviceError("paddle is compiled without CUDA")
        paddle.set_device({"cpu": "cpu", "cuda": "gpu"}[device])
        self.device = device
        self.threads = allowed()

    def versions(self) -> dict[str, str]:
        return {"paddle": paddle.__version__}

    def functions(self) -> Sequence[Function]:
        return tuple(map(_as_used, functions(natives.NATIVES, MODES)))

    def native_norm(self, order: float) -> tuple[str, Callable[[Any], Any]]:
        return "params", lambda params: paddle.nn.utils.clip_grad_norm_(params, 1e30, order)

    def make(self, array: np.ndarray, dtype: str) -> Any:
        return paddle.to_tensor(array.copy()).astype(dtype)

    def copy(self, x: Any) -> Any:
        return x.clone()

    def hold(self, x: Any) -> tuple[Any, Any]:
        zeros = paddle.nn.initializer.Constant(0.0)  # the default has no bfloat16
        parameter = paddle.create_parameter(x.shape, self.dtype(x), default_initializer=zeros)
        parameter.grad = x
        return parameter, parameter.grad  # this is a copy; the optimizer's clip gets it

    def restore(self, sample: Sample) -> None:
        for x, was in zip(sample.tensors, sample.pristine, strict=True):
            paddle.assign(was, x)
        self._wait()

    def read(self, x: Any) -> np.ndarray:
        values: np.ndarray = x.detach().astype("float64").numpy()
        return values

    def dtype(self, x: Any) -> str:
        return str(x.dtype).removeprefix("paddle.")

    def call(self, function: Callable[[Any], Any], mode: str, form: str, sample: Sample) -> Call:
        if mode == EAGER:
            given = sample.form(form)
            return lambda: self._wait(function(given))

        def of_tensors(tensors: list[Any]) -> list[Any]:
            return function(tensors)  # type: ignore[no-any-return]

        def of_pairs(tensors: list[Any]) -> list[Any]:
            return _grads(function([(_STANDS_IN, g) for g in tensors]))

        run, tensors = paddle.jit.to_static(of_pairs if form == "pairs" else of_tensors, full_graph=True), sample.tensors
        return lambda: self._wait(run(tensors))

    def writes(self, function: Function, mode: str) -> bool:
        return function.in_place and mode == EAGER  # a program returns new gradients

    def allocated(self, call: Call) -> int:
        # Paddle keeps the memory that it got from the system, so the process does not show what a call takes
        core, place = paddle.base.core, "device" if self.device == "cuda" else "host"
        getattr(core, f"{place}_memory_stat_reset_peak_value")("Allocated", 0)
        before = getattr(core, f"{place}_memory_stat_current_value")("Allocated", 0)
        call()
        return int(getattr(core, f"{place}_memory_stat_peak_value")("Allocated", 0) - before)

    def _wait(self, result: Any = None) -> Any:
        if self.device == "cuda":
            paddle.device.synchronize()
        return result


subject = PaddleSubject
