"""NumPy, whose native is what people write: the norm as a sum of sums of squares, then every array times a factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import gradclip
from benchmarks.case import EAGER, Function, Kind
from benchmarks.subjects.base import Call, Sample, Subject
from gradclip.backends.host.threads import allowed
from gradclip.dialects import tensorflow


def norm_of(grads: list[Any]) -> Any:
    return np.sqrt(sum(np.sum(np.square(g)) for g in grads))


def in_place(limit: float) -> Callable[[Any], Any]:
    def clip(grads: list[Any]) -> Any:
        norm = norm_of(grads)
        if norm > limit:
            for g in grads:
                g *= limit / norm
        return norm

    return clip


def out_of_place(limit: float) -> Callable[[Any], Any]:
    def clip(grads: list[Any]) -> Any:
        norm = norm_of(grads)
        c = min(1.0, limit / norm)
        return [g * c for g in grads], norm

    return clip


def each(limit: float) -> Callable[[Any], Any]:
    def clip(grads: list[Any]) -> Any:
        return [g * min(1.0, limit / np.sqrt(np.sum(np.square(g)))) for g in grads]

    return clip


def values_in_place(limit: float) -> Callable[[Any], Any]:
    def clip(grads: list[Any]) -> None:
        for g in grads:
            np.clip(g, -limit, limit, out=g)

    return clip


class NumpySubject(Subject):
    name = "numpy"
    modes = (EAGER,)

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.threads = allowed()

    def versions(self) -> dict[str, str]:
        return {"numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__}

    def functions(self) -> Sequence[Function]:
        return (
            Function(
                "clip_grad_norm_",
                Kind.GLOBAL,
                in_place,
                lambda limit: lambda grads: gradclip.clip_grad_norm_(grads, limit),
                in_place=True,
                norm=lambda result: result,
            ),
            Function(
                "clip_by_global_norm",
                Kind.GLOBAL,
                out_of_place,
                lambda limit: lambda grads: gradclip.clip_by_global_norm(grads, limit),
                norm=lambda result: result[1],
                grads=lambda result: result[0],
            ),
            Function(
                "clip_by_norm",
                Kind.EACH,
                each,
                lambda limit: lambda grads: gradclip.clip(grads, tensorflow.clip_by_norm(limit)).grads,
            ),
            Function(
                "clip_grad_value_",
                Kind.VALUE,
                values_in_place,
                lambda limit: lambda grads: gradclip.clip_grad_value_(grads, limit),
                in_place=True,
            ),
            Function(
                "clip_by_value",
                Kind.VALUE,
                lambda limit: lambda grads: [np.clip(g, -limit, limit).astype(g.dtype, copy=False) for g in grads],
                lambda limit: lambda grads: gradclip.clip(grads, tensorflow.clip_by_value(-limit, limit)).grads,
            ),
            Function(
                "global_norm",
                Kind.NORM,
                lambda limit: norm_of,
                lambda limit: gradclip.global_norm,
                norm=lambda result: result,
            ),
        )

    def native_norm(self, order: float) -> tuple[str, Callable[[Any], Any]]:
        if order == 2:
            return "tensors", norm_of
        if order == math.inf:
            return "tensors", lambda grads: max(np.max(np.abs(g)) for g in grads)
        return "tensors", lambda grads: sum(np.sum(np.abs(g) ** order) for g in grads) ** (1 / order)

    def make(self, array: np.ndarray, dtype: str) -> Any:
        return array.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    def copy(self, x: Any) -> Any:
        return x.copy()

    def restore(self, sample: Sample) -> None:
        for x, was in zip(sample.tensors, sample.pristine, strict=True):
            x[...] = was

    def read(self, x: Any) -> np.ndarray:
        return np.asarray(x, np.float64)

    def call(self, function: Callable[[Any], Any], mode: str, form: str, sample: Sample) -> Call:
        given = sample.form(form)
        return lambda: function(given)

    def allocated(self, call: Call) -> int:
        return 0


subject = NumpySubject
