"""The cases of this run's framework: both sides compute the same, failures are reported, and changed settings are restored."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks import accuracy, case, exact
from benchmarks.bench import Bench, moves
from benchmarks.case import CLIPPED, EAGER, UNCLIPPED, Function, Key, Kind, limit, said
from benchmarks.machine import Moves, Rates
from benchmarks.subjects.base import NoDeviceError, Sample, Subject
from benchmarks.subjects.natives import kind
from benchmarks.timing import Budget
from gradclip.natives import NATIVES

if TYPE_CHECKING:
    from frameworks.base import Framework

ARRAYS = [np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4), np.array([0.5, -3.0, 0.0], np.float32)]

# keras warns itself, and paddle warns while it traces
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.* do not have 'place' interface:UserWarning")


@pytest.fixture(scope="module")
def subject(backend: Framework) -> Subject:
    made: Subject = importlib.import_module(f"benchmarks.subjects.{backend.name}").subject("cpu")
    if backend.name == "torch":
        made.compiler = "aot_eager"  # type: ignore[attr-defined]  # inductor takes seconds
    return made


def results(subject: Subject, function: Function, side: str, mode: str, state: str) -> list[np.ndarray]:
    """Return the clipped gradients, and the norm if there is one."""
    sample = Sample(subject, ARRAYS, "float32")
    bound = limit(function.kind, exact.norms(map(subject.read, sample.tensors)), state)
    result = subject.call(getattr(function, side)(bound), mode, function.form, sample)()
    got = [] if function.norm is None else [subject.read(function.norm(result))]
    if function.kind is Kind.NORM:
        return got
    written = function.in_place and subject.writes(function, mode)
    return [*got, *map(subject.read, sample.tensors if written else function.grads(result))]


def test_every_native_that_clips_gradients_alone_is_timed(subject: Subject, backend: Framework) -> None:
    own = {native.last for native in NATIVES if native.is_own and native.family == backend.name and kind(native)}
    if own:  # NumPy has no natives: there people write clips by hand
        timed = {function.name for function in subject.functions() if function.kind is not Kind.NORM}
        assert own == timed - keras_names(subject)


def keras_names(subject: Subject) -> set[str]:
    return {function.name for function in subject.functions() if function.name.startswith("keras.")}


def test_both_sides_do_the_same_and_that_is_to_clip(subject: Subject) -> None:
    for function in subject.functions():
        for mode in function.modes:
            for state in function.states():
                ours = results(subject, function, "ours", mode, state)
                try:
                    native = results(subject, function, "native", mode, state)
                except NotImplementedError:  # Paddle cannot clip by value in a program
                    assert (function.name, mode) == ("ClipGradByValue", "static")
                    continue
                for got, want in zip(ours, native, strict=True):
                    assert got == pytest.approx(want, rel=1e-5), (function.name, mode, state)
                changed = [not np.array_equal(x, y) for x, y in zip(ours[-2:], ARRAYS, strict=False)]
                assert function.kind is Kind.NORM or changed == [state == CLIPPED] * 2, (function.name, mode, state)
    subject.forget()


@pytest.mark.slow("a framework whose subject cannot be timed or whose memory cannot be counted", unless="numpy")
def test_a_case_from_end_to_end(subject: Subject) -> None:
    bench = Bench(subject, lambda: Rates(1e9, 1e9, 1e9, 1e9), Budget(0.0, least=2), quick=True)
    bench.cache = 0  # makes every set count as large
    bench.load("mlp", "float32")
    pristine = [subject.read(x).copy() for x in bench.sample.tensors] if bench.sample else []
    for function in subject.functions():
        key = Key(subject.name, function.name, "mlp", function.states()[-1], "float32", EAGER)
        entry = bench.run(key)
        assert entry["failures"] == {}
        assert entry["ratio"] == entry["native seconds"] / entry["gradclip seconds"] > 0
        assert entry["bytes"] == 4 * 109_386
        assert entry["limit seconds"] == pytest.approx(entry["bytes"] / 1e9 * sum(entry["moves"].values()))
        assert entry["gradclip threads"] > 0
        if subject.name == "numpy":  # other frameworks show it in the memory of the process, page by page
            assert entry["gradclip memory"] == pytest.approx(entry["moves"]["copy"], abs=0.05)
        if function.kind is not Kind.VALUE:
            assert entry["gradclip error"] <= 4, function.name
        assert bench.sample is not None
        assert all(np.array_equal(subject.read(x), y) for x, y in zip(bench.sample.tensors, pristine, strict=True))


def failing(*arguments: Any) -> Any:
    raise RuntimeError("no\nkernel")


def test_a_native_that_fails_is_told_and_gradclip_is_timed_alone(subject: Subject) -> None:
    bench = Bench(subject, lambda: None, Budget(0.0, least=2), quick=True)
    bench.load("mlp", "float32")
    name, function = next(iter(bench.functions.items()))
    key = Key(subject.name, name, "mlp", CLIPPED, "float32", EAGER)
    bench.functions[name] = replace(function, native=lambda limit: failing)
    entry = bench.run(key)
    assert entry["failures"] == {"native": "RuntimeError: no kernel"}
    assert entry["gradclip seconds"] > 0
    assert "ratio" not in entry
    assert "native seconds" not in entry
    bench.functions[name] = replace(function, native=failing, ours=lambda limit: failing)
    assert bench.run(key)["failures"] == {"native": "RuntimeError: no kernel", "gradclip": "RuntimeError: no kernel"}


def test_a_dtype_that_is_not_there_fails_every_case_of_it(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "make", failing)
    bench = Bench(subject, lambda: None, Budget(0.0, least=2), quick=True)
    bench.load("mlp", "bfloat16")
    entry = bench.run(Key(subject.name, next(iter(bench.functions)), "mlp", CLIPPED, "bfloat16", EAGER))
    assert entry["failures"] == dict.fromkeys(("native", "gradclip"), "no gradients: RuntimeError: no kernel")


def test_the_least_moves(subject: Subject) -> None:
    for function in subject.functions():
        for mode in function.modes:
            clipped, unclipped = (
                moves(function, _key(subject, function, state, mode), subject) for state in (CLIPPED, UNCLIPPED)
            )
            if function.kind is Kind.NORM:
                assert clipped == unclipped == Moves(read=1)
                continue
            reads = 0 if function.kind is Kind.VALUE else 1
            assert clipped == (Moves(reads, scale=1) if subject.writes(function, mode) else Moves(reads, copy=1))
            if mode != EAGER:
                assert unclipped == clipped  # no value may be read here
            else:
                copies = int(subject.mutable and not function.in_place)
                assert unclipped == Moves(reads or 1 - copies, copy=copies)


def _key(subject: Subject, function: Function, state: str, mode: str) -> Key:
    return Key(subject.name, function.name, "mlp", state, "float32", mode)


def test_keys_are_cases_of_this_framework(subject: Subject) -> None:
    keys = list(subject.keys(["mlp", "vectors"]))
    assert len(set(keys)) == len(keys)
    assert {key.framework for key in keys} == {subject.name}
    assert {key.dtype for key in keys} == {"float32", "bfloat16"}
    modes = {mode for function in subject.functions() for mode in function.modes}
    assert {key.mode for key in keys if key.gradients == "mlp"} == modes
    assert not any(key.dtype == "bfloat16" and key.mode != EAGER for key in keys if key.gradients == "vectors")
    assert all(Key.parse(str(key)) == key for key in keys)


@pytest.mark.slow("a framework whose norms the benchmark cannot compare", unless="numpy")
def test_errors_of_norms(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "layouts", lambda mode, quick: [(1000, 1), (3000, 4)])
    known: accuracy.Exact = {}
    for mode in subject.modes:
        entries = list(accuracy.worst(subject, mode, True, known, lambda step: None))
        assert [entry["order"] for entry in entries[:4]] == ["1.0", "2.0", "3.0", "inf"]
        for entry in entries:
            assert "gradclip" not in entry["failures"], entry
            assert entry["gradclip error"] < 100  # the floors say how exact the results must be
            assert " in " in entry["gradclip where"]
            if (entry["dtype"], entry["order"], mode) == ("float32", "2.0", EAGER):
                assert entry["native error"] < 1000


def test_a_framework_without_such_a_device() -> None:
    with pytest.raises(NoDeviceError, match="has no cuda"):
        Subject("cuda")


def test_a_failure_names_files_from_the_root_of_the_project() -> None:
    root = Path(case.__file__).parent.parent
    error = TypeError(f'In transformed code:\n  File "{root / "benchmarks" / "case.py"}", line 1')
    assert said(error) == 'TypeError: In transformed code: File "benchmarks/case.py", line 1'.replace("/", os.sep)
