"""The benchmark finds missed floors, and every case has a floor."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest
from benchmark_command.outcomes import case, norm, outcome

from benchmarks.case import EAGER, Key, matches
from benchmarks.floors import COMPILED, FLOORS, QUICK_FLOORS, Floor, missed, unmeasured
from benchmarks.sets import SETS

if TYPE_CHECKING:
    from frameworks.base import Framework

MLP = "torch/clip_grad_norm_/mlp/unclipped/float32/eager"
TENSOR = "torch/clip_grad_norm_/tensor/unclipped/float32/eager"


def test_every_case_has_one_floor_of_the_full_run_for_its_ratio(backend: Framework) -> None:
    """A case without a floor could be as slow as it likes."""
    subject = importlib.import_module(f"benchmarks.subjects.{backend.name}").subject("cpu")
    ratios = [floor for floor in FLOORS if floor.quantity == "ratio"]
    for key in subject.keys(SETS, False):
        assert sum(matches(key, floor.only) for floor in ratios) == 1, key
        assert matches(key, COMPILED) == (key.mode != EAGER), key


def test_every_case_is_bounded_in_a_quick_run() -> None:
    assert not QUICK_FLOORS[0].only


def test_a_ratio_is_missed_where_its_interval_is_below() -> None:
    floors = (Floor("none is slower", 0.95),)
    assert missed(outcome(case(MLP, 0.95)), floors) == []
    assert missed(outcome(case(MLP, 0.945, high=0.951)), floors) == []
    [miss] = missed(outcome(case(MLP, 0.945, high=0.949)), floors)
    assert str(miss) == f"{MLP}: 0.94, at least 0.95 (none is slower)"


def test_patterns_select() -> None:
    unclipped = (Floor("unclipped", 2.0, ("torch/*/unclipped/*/eager",)),)
    clipped = TENSOR.replace("unclipped", "clipped")
    assert [miss.name for miss in missed(outcome(case(TENSOR, 1.0), case(clipped, 1.0)), unclipped)] == [TENSOR]


def test_the_mean_is_over_all() -> None:
    floors = (Floor("mean", 3.0, quantity="mean"),)
    assert missed(outcome(case(MLP, 1.0), case(TENSOR, 9.0)), floors) == []
    [miss] = missed(outcome(case(MLP, 1.0), case(TENSOR, 8.0)), floors)
    assert miss.value == pytest.approx(8**0.5)
    assert missed(outcome(), floors) == []


def test_floors_of_which_nothing_was_measured() -> None:
    floors = (Floor("any", 0.5), Floor("mean", 3.0, quantity="mean"), Floor("of jax", 1.0, ("jax/*",)))
    assert unmeasured(outcome(), floors) == list(floors)
    assert unmeasured(outcome(case(MLP, 1.0)), floors) == [floors[2]]
    assert unmeasured(outcome(case(MLP, failures={"native": "RuntimeError: no kernel"})), floors) == list(floors)


def test_memory_and_errors_are_at_most() -> None:
    floors = tuple(Floor(quantity, 1.25, quantity=quantity) for quantity in ("memory", "error"))
    good = case(TENSOR, 2.0, gradclip_memory=1.2, gradclip_error=1.2)
    assert missed(outcome(good, accuracy=[norm(1.2)]), floors) == []
    bad = case(TENSOR, 2.0, gradclip_memory=1.33, gradclip_error=1.3)
    misses = missed(outcome(bad, accuracy=[norm(1.3)]), floors)
    names = [TENSOR, TENSOR, "accuracy/torch/eager/float32/p=2.0"]
    assert [(miss.floor.quantity, miss.name) for miss in misses] == list(zip(["memory", "error", "error"], names, strict=True))
    assert str(misses[0]) == f"{TENSOR}: 1.33, at most 1.25 (memory)"


def test_new_gradients_are_no_extra_memory() -> None:
    floors = (Floor("memory", 0.01, quantity="memory"),)
    copied = {"read": 1, "scale": 0, "copy": 1}
    assert missed(outcome(case(TENSOR, 2.0, moves=copied, gradclip_memory=1.04)), floors) == []
    [miss] = missed(outcome(case(TENSOR, 2.0, gradclip_memory=0.02)), floors)
    assert miss.floor.what == "memory"
    assert missed(outcome(case(TENSOR, 2.0, gradclip_memory=None)), floors) == []


def test_a_nan_is_a_miss() -> None:
    assert len(missed(outcome(accuracy=[norm(float("nan"))]), (Floor("error", 4.0, quantity="error"),))) == 1


def test_failures_of_gradclip_are_misses_and_those_of_a_native_are_not() -> None:
    floors = (Floor("any", 0.5),)
    assert missed(outcome(case(MLP, failures={"native": "RuntimeError: no kernel"})), floors) == []
    failed = [case(MLP, failures={"gradclip": "ValueError: x"}), case(TENSOR, failures={"process": "crashed with SIGSEGV"})]
    assert [str(miss) for miss in missed(outcome(*failed), floors)] == [
        f"{MLP}: gradclip: ValueError: x",
        f"{TENSOR}: process: crashed with SIGSEGV",
    ]
    assert len(missed(outcome(accuracy=[norm(0.1, failures={"gradclip": "ValueError: x"})]), floors)) == 1


def test_a_framework_that_ends_early_is_a_miss_and_one_that_is_not_there_is_none() -> None:
    found = missed(outcome(torch={"failure": "crashed"}, jax={"skipped": "not installed: jax"}), (Floor("any", 0.5),))
    assert [(miss.name, miss.value) for miss in found] == [("torch", "crashed")]


def test_patterns_of_cases() -> None:
    key = Key.parse(MLP)
    assert str(key) == MLP
    assert matches(key, [])
    for pattern in (MLP, "torch", "torch/clip_grad_norm_/mlp", "*/mlp/*", "*/eager", "jax", "torch/*/float32/eager"):
        assert matches(key, [pattern]) == (pattern != "jax"), pattern
    assert matches(key, ["jax", "torch/clip_*"])
    assert not matches(key, ["torch/clip_grad"])
