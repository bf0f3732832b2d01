"""All measurements of one case: times, memory, threads, errors, failures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from benchmarks import exact, machine, memory
from benchmarks.case import CLIPPED, DONATED, EAGER, SIDES, Function, Key, Kind, limit, said
from benchmarks.machine import Moves, Rates
from benchmarks.sets import arrays, chosen
from benchmarks.subjects.base import Sample, Subject
from benchmarks.timing import Budget, alternately

__all__ = ["Bench", "moves"]

Call = Callable[[], Any]
WIDTH = {"float32": 4, "bfloat16": 2}


class Bench:
    """Measures the cases of a framework, with one set of gradients at a time."""

    def __init__(self, subject: Subject, measure: Callable[[], Rates | None], budget: Budget, quick: bool) -> None:
        self.subject, self.measure, self.budget, self.sets = subject, measure, budget, chosen(quick)
        self.rates: Rates | None = None
        self.probed = ""  #: the set before which the rates were measured
        self.functions = {function.name: function for function in subject.functions()}
        self.cache = machine.cache()
        self.sample: Sample | None = None
        self.failure = ""

    def load(self, gradients: str, dtype: str) -> None:
        """Make the gradients, in place of those before."""
        self.sample, self.failure = None, ""
        self.bytes = self.sets[gradients].size * WIDTH[dtype]
        if self.bytes > self.cache and self.probed != gradients:
            self.rates, self.probed = self.measure(), gradients  # for each set: a shared machine varies in speed
        try:
            self.sample = Sample(self.subject, arrays(self.sets[gradients]), dtype)
            self.norms = exact.norms(map(self.subject.read, self.sample.tensors))
        except Exception as error:  # a framework may lack the dtype, and raise anything
            self.failure = f"no gradients: {said(error)}"

    def run(self, key: Key) -> dict[str, Any]:
        """The measurements of a case; a failure omits only what could not be measured."""
        function = self.functions[key.function]
        result: dict[str, Any] = {"key": str(key), "bytes": self.bytes, "failures": {}}
        if self.sample is None:
            return result | {"failures": dict.fromkeys(SIDES, self.failure)}
        bound, calls = limit(function.kind, self.norms, key.clipped), {}
        for side, make in zip(SIDES, (function.native, function.ours), strict=True):
            try:
                call = self.subject.call(make(bound), key.mode, function.form, self.sample)
                result[f"{side} error"] = self.error(function, key, call, bound)
                calls[side] = call
            except Exception as error:  # a native that fails is reported, and gradclip is timed alone
                result["failures"][side] = said(error)
        if calls:
            restore = self.restore if self.changes(function, key) else None
            result |= self.time(calls, restore)
            if self.bytes > self.cache:
                result |= self.large(function, key, calls, restore)
        self.restore()
        self.subject.forget()
        return result

    def time(self, calls: dict[str, Call], restore: Call | None) -> dict[str, Any]:
        """Time both sides in turn; a single side alternates with itself."""
        native, ours = (calls.get(side, next(iter(calls.values()))) for side in SIDES)
        timing = alternately(native, ours, restore, self.budget)
        seconds = zip(SIDES, (timing.native, timing.ours), strict=True)
        result: dict[str, Any] = {f"{side} seconds": taken for side, taken in seconds if side in calls}
        if len(calls) == len(SIDES):
            result |= {"ratio": timing.ratio, "low": timing.low, "high": timing.high, "rounds": timing.rounds}
        return result

    def large(self, function: Function, key: Key, calls: dict[str, Call], restore: Call | None) -> dict[str, Any]:
        """Measurements for gradients that do not fit into a cache: the machine's limit, memory, threads."""
        least = moves(function, key, self.subject)
        result: dict[str, Any] = {"moves": asdict(least)}
        if self.rates is not None:
            result["limit seconds"] = self.rates.seconds(least, self.bytes)
        for side, call in calls.items():
            for name, measure in (("memory", self.memory), ("threads", _threads)):
                if restore is not None:
                    restore()
                result[f"{side} {name}"] = measure(call, restore)
        return result

    def memory(self, call: Call, restore: Call | None) -> float | None:
        """The peak memory that a call takes, relative to the gradients."""
        taken = self.subject.allocated(call)
        if taken is None and self.subject.device == "cpu" and memory.can_measure():
            taken = memory.peak(call, restore)
        elif taken is not None:
            if restore is not None:
                restore()
            taken += memory.of_numpy(call)
        return None if taken is None else taken / self.bytes

    def error(self, function: Function, key: Key, call: Call, bound: float) -> float | None:
        """The error in ulp of the returned norm, or of the norm that the clipped gradients imply."""
        if self.changes(function, key):
            self.restore()
        result = call()
        if function.norm is not None:
            returned = function.norm(result)
            return exact.ulps(float(self.subject.read(returned)), self.norms.total, self.subject.dtype(returned))
        if function.kind is Kind.VALUE or key.clipped != CLIPPED or key.dtype != "float32":
            return None
        assert self.sample is not None
        written = function.in_place and self.subject.writes(function, key.mode)
        after = self.sample.tensors if written else function.grads(result)
        return exact.implied(function.kind, self.norms, bound, map(self.subject.read, after))

    def changes(self, function: Function, key: Key) -> bool:
        """Whether a call changes the gradients."""
        return self.subject.writes(function, key.mode) and (key.clipped == CLIPPED or key.mode == DONATED)

    def restore(self) -> None:
        """Give the gradients their first values again."""
        if self.sample is not None:
            self.subject.restore(self.sample)


def moves(function: Function, key: Key, subject: Subject) -> Moves:
    """The least traffic of memory.

    Traced clips, and clips on an accelerator, cannot test whether anything is clipped. Unclipped gradients are copied only if
    the function promises new, writable ones.
    """
    if function.kind is Kind.NORM:
        return Moves(read=1)
    in_place = subject.writes(function, key.mode)
    looks = key.clipped != CLIPPED and key.mode == EAGER and subject.device == "cpu"
    if looks and (in_place or not subject.mutable):
        return Moves(read=1)
    read = int(function.kind is not Kind.VALUE)
    return Moves(read, scale=1) if in_place else Moves(read, copy=1)


def _threads(call: Call, restore: Call | None) -> float:
    """The average number of working threads."""
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return cpu / wall
