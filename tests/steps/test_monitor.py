"""The monitor: its numbers match NumPy's for any input; it does not grow, and loses nothing."""

from __future__ import annotations

import json
import math
import operator
import sys
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from hypothesis import given, settings
from hypothesis import strategies as st

import gradclip
from gradclip.dialects import keras, optax
from gradclip.dialects import torch as dialect
from gradclip.steps.monitor.section import WINDOWS

OFF = 2.0 ** (1 / 16)  # the factor by which the midpoint of a bin can be off
ANY = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=False)
NORMS = st.one_of(st.floats(2.0**-100, 2.0**100), st.sampled_from([0.0, math.nan, math.inf, 1e-37, 3e38, 1.0]))


def quantile(norms: list[float], q: float) -> float:
    return float(np.quantile(norms, q, method="inverted_cdf"))


def told(norms: list[float], limit: float | None = 1.0, **options: Any) -> gradclip.Monitor:
    monitor = gradclip.Monitor(**options)
    for norm in norms:
        monitor.update(norm, limit=limit)
    return monitor


def same(one: dict[str, float], other: dict[str, float]) -> None:
    """The names are equal; the numbers are equal up to the order of their summation."""
    assert one.keys() == other.keys()
    for name, x in one.items():
        assert x == pytest.approx(other[name], rel=1e-12, nan_ok=True), name


# ---- the numbers ---------------------------------------------------------------------------------------------------------


def check_report(found: dict[str, float], norms: list[float], limit: float) -> None:
    finite = [n for n in norms if math.isfinite(n)]
    broken = [i for i, n in enumerate(norms) if not math.isfinite(n)]
    clipped = [n for n in finite if n > limit]
    assert (found["steps"], found["clipped_steps"], found["not_finite"]) == (len(norms), len(clipped), len(broken))
    assert (found.get("not_finite_first_step"), found.get("not_finite_last_step")) == (
        (broken[0], broken[-1]) if broken else (None, None)
    )
    if not finite:
        assert math.isnan(found["norm_before_p50"])
        assert math.isnan(found["clipped_fraction"])
        return
    assert found["clipped_fraction"] == len(clipped) / len(finite)
    assert found["coefficient_mean"] == pytest.approx(np.mean([min(1.0, limit / n) if n else 1.0 for n in finite]))
    for name, exact in (("before", finite), ("after", [min(n, limit) for n in finite])):
        assert found[f"norm_{name}_mean"] == pytest.approx(math.fsum(exact) / len(exact))
        assert found[f"norm_{name}_largest"] == pytest.approx(max(exact), rel=1e-15)
        for q in (0.01, 0.1, 0.5, 0.9, 0.99):
            got, want = found[f"norm_{name}_p{100 * q:g}"], quantile(exact, q)
            assert want / OFF * (1 - 1e-12) <= got <= want * OFF * (1 + 1e-12), q


@given(st.lists(NORMS, max_size=60), st.sampled_from([1.0, 1e-3, 1e20]), st.integers(1, 30))
def test_the_numbers_are_those_of_numpy(norms: list[float], limit: float, every: int) -> None:
    check_report(told(norms, limit, every=every).report(), norms, limit)


@given(st.lists(NORMS, max_size=40), st.lists(NORMS, max_size=40), st.integers(1, 30))
def test_merged_is_as_if_one_had_seen_all(first: list[float], second: list[float], every: int) -> None:
    merged = told(first, every=every)
    merged.merge(told(second, every=7))
    same(merged.report(), told(first + second).report())


@given(st.lists(NORMS, max_size=40), st.lists(NORMS, max_size=40))
def test_a_restart_loses_nothing(first: list[float], second: list[float]) -> None:
    monitor = gradclip.Monitor()
    monitor.load_state_dict(json.loads(json.dumps(told(first).state_dict())))
    for norm in second:
        monitor.update(norm, limit=1.0)
    assert json.dumps(monitor.state_dict()) == json.dumps(told(first + second).state_dict())


def test_the_sum_of_huge_norms_overflows_nothing() -> None:
    found = told([1.5e308, 1.5e308], 1e308)
    assert found.report()["norm_before_mean"] == sys.float_info.max / 2
    json.dumps(found.state_dict(), allow_nan=False)


def test_the_size_is_constant() -> None:
    rng = np.random.default_rng(0)
    norms = np.exp(rng.normal(size=5000)).tolist()
    short, long = (told(norms * times) for times in (12, 24))
    assert len(long.sections[0].windows) <= WINDOWS
    assert len(json.dumps(long.state_dict())) < 1.2 * len(json.dumps(short.state_dict()))
    assert sum(window.steps for window in long.sections[0].windows) == 120_000
    check_report(long.report(), norms * 24, 1.0)


# ---- updates -------------------------------------------------------------------------------------------------------------


def gradients(backend: Framework, *sizes: float) -> list[Any]:
    return [backend.make(np.array([size])) for size in sizes]


def test_a_result_of_the_framework(backend: Framework) -> None:
    monitor, sizes = gradclip.Monitor(every=3), [0.5, 3.0, 4.0, np.nan, 0.0, 12.0, 0.25]
    for size in sizes:
        result = gradclip.clip(gradients(backend, size), optax.clip_by_global_norm(1.0))
        assert monitor.update(result) is result
    check_report(monitor.report(), sizes, 1.0)


def test_a_norm_of_the_framework(backend: Framework) -> None:
    limit, monitor = 1.0, gradclip.Monitor()
    for size in (0.5, 4.0):
        monitor.update(gradclip.norm(gradients(backend, size), dialect.clip_grad_norm(limit)), limit=limit)
        monitor.update(backend.make(size), limit=backend.make(limit))
    check_report(monitor.report(), [0.5, 0.5, 4.0, 4.0], limit)


def test_a_norm_without_a_limit_was_only_measured() -> None:
    found = told([1.0, 2.0], None).report()
    assert found["norm_before_largest"] == 2.0
    assert math.isnan(found["norm_after_largest"])
    assert math.isnan(found["coefficient_mean"])
    assert found["clipped_steps"] == 0


def test_each_norm_counts_of_a_rule_with_a_norm_for_each_gradient(backend: Framework) -> None:
    monitor = gradclip.Monitor()
    result = gradclip.clip([*gradients(backend, 0.5, 4.0), None, *gradients(backend, np.inf)], keras.clipnorm(1.0))
    found = monitor.update(result) and monitor.report()
    assert (found["steps"], found["clipped_steps"], found["clipped_fraction"], found["not_finite"]) == (1, 1, 1.0, 1)
    assert (found["norm_before_largest"], found["norm_after_largest"], found["coefficient_mean"]) == (4.0, 1.0, 0.625)


def test_norms_in_the_container_of_the_gradients(backend: Framework) -> None:
    """It also works after an earlier access to the result, which turns the list into a container."""
    grads = {"b": gradients(backend, 4.0)[0], "a": [None, gradients(backend, 0.5)[0]]}
    for look in (False, True):
        monitor = gradclip.Monitor()
        result = gradclip.clip(grads, keras.clipnorm(1.0))
        if look:
            assert set(result.norm) == {"a", "b"}
        found = monitor.update(result) and monitor.report()
        assert (found["norm_before_largest"], found["coefficient_mean"]) == (4.0, 0.625)


def test_a_norm_for_each_example(backend: Framework) -> None:
    monitor = gradclip.Monitor()
    examples = backend.make(np.array([[3.0, 4.0], [0.3, 0.4]]))
    monitor.update(gradclip.clip([examples], optax.per_example_global_norm_clip(1.0)))
    found = monitor.report()
    assert (found["steps"], found["norm_before_largest"]) == (1, 5.0)
    assert found["norm_before_p10"] == pytest.approx(0.5, rel=0.045)


def test_a_rule_by_value_has_no_norm(backend: Framework) -> None:
    monitor = gradclip.Monitor()
    monitor.update(gradclip.clip(gradients(backend, 3.0), dialect.clip_grad_value(1.0)))
    assert monitor.report()["steps"] == 1
    assert math.isnan(monitor.report()["norm_before_mean"])


def test_groups_have_a_section_each(backend: Framework) -> None:
    grads = {"a": backend.make(np.array([3.0])), "b": backend.make(np.array([0.5])), "c": backend.make(np.array([8.0]))}
    groups = [gradclip.Group(keras.clipnorm(1.0), ["a", "b"]), gradclip.Group(optax.clip_by_global_norm(2.0))]
    monitors = [gradclip.Monitor(every=every) for every in (1, 100)]
    for monitor in monitors:
        for _ in range(2):
            monitor.update(gradclip.clip(grads, groups))
        found = monitor.report()
        assert (found["0/norm_before_largest"], found["1/norm_before_largest"], found["1/coefficient_mean"]) == (3, 8, 0.25)
        assert (found["0/steps"], found["0/clipped_steps"], found["0/norm_after_mean"]) == (2, 2, 0.75)
        assert str(monitor).count("group 1:") == 1
    monitors[0].merge(monitors[1])
    assert monitors[0].report()["1/steps"] == 4


def test_a_clipped_norm_is_in_the_bin_of_its_limit() -> None:
    """Rounding may leave it just below."""
    norms = np.random.default_rng(0).uniform(1.0, 100.0, size=300).tolist()
    assert told(norms, 1.0).report()["norm_after_p10"] == pytest.approx(1.0, rel=1e-12)


# ---- on the terminal -----------------------------------------------------------------------------------------------------


def test_five_lines() -> None:
    lines = str(told([0.5, 2.0, 4.0, math.nan], 1.0)).splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) < 110
    assert lines[0] == "4 steps, 2 clipped (66.7 %)"
    assert lines[1] == "  coefficient   mean 0.5833; clipped to 1 in the mean"
    assert lines[2].startswith("  norm before   mean 2.167  p1 0.5")
    assert lines[4] == "  not finite    1 (step 3)"
    assert str(gradclip.Monitor()).splitlines()[0] == "0 steps, 0 clipped (-)"


@pytest.mark.parametrize(
    ("make", "coefficient", "norms"),
    [
        (lambda: told([2.0], None), "none: the norms came without a limit", ("mean 2", "none")),
        (lambda: told([0.5], 1.0), "mean 1; nothing was clipped", ("mean 0.5", "mean 0.5")),
        (lambda: told([math.nan], 1.0), "none: no step was clipped", ("none", "none")),
        (gradclip.Monitor, "none: no step was clipped", ("none", "none")),
        (lambda: by_value(1.5), "none: the rule clips by value", ("none", "none")),
        (lambda: by_value(5.0), "none: the rule clips by value", ("none", "none")),
    ],
)
def test_an_unknown_number_has_a_reason(make: Any, coefficient: str, norms: tuple[str, str]) -> None:
    _, first, *others, _ = str(make()).splitlines()
    assert first == f"  coefficient   {coefficient}"
    assert [line[16:].split("  ")[0] for line in others] == list(norms)


def by_value(limit: float) -> gradclip.Monitor:
    monitor = gradclip.Monitor()
    monitor.update(gradclip.clip([np.array([1.0, 2.0])], dialect.clip_grad_value(limit)))
    return monitor


# ---- errors --------------------------------------------------------------------------------------------------------------


def state() -> dict[str, Any]:
    return told([1.0, 3.0]).state_dict()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        *(
            (lambda m, x=x: m.update(x), TypeError, "A norm must be a float, or a tensor of floats")
            for x in ("1.0", [1.0, object()], 3, True, 10**400, None, 1j, np.array(1j), np.array("x"), np.int64(3), [[True]])
        ),
        *(
            (lambda m, x=x: m.update(1.0, limit=x), TypeError, "limit must be a")
            for x in ("1", True, 1j, [1.0], object(), np.array(1j))
        ),
        (lambda m: m.update(1.0, limit=-1), ValueError, "limit must not be negative"),
        (lambda m: m.update(1.0, limit=math.nan), ValueError, "limit must be a number, not NaN"),
        (lambda m: m.update(1.0, limit=10**400), ValueError, "limit must fit in a float"),
        (lambda m: m.update(1.0, limit=np.ones(2)), ValueError, "limit must have one element"),
        (lambda m: m.load_state_dict({}), ValueError, "This is not the state of a monitor"),
        (lambda m: m.load_state_dict("x"), ValueError, "This is not the state of a monitor"),
        (lambda m: m.load_state_dict(state() | {"version": 99}), ValueError, "of another version"),
        (lambda m: m.merge("x"), TypeError, "A monitor can be merged with a monitor"),
        (lambda m: m.merge({}), TypeError, "A monitor can be merged with a monitor"),
        (lambda m: m.init(like="x"), TypeError, "A name is not a tensor"),
        (lambda m: gradclip.Monitor(every=0), ValueError, "every must be a positive whole number"),
        (lambda m: gradclip.Monitor(every=1.5), ValueError, "every must be a positive whole number"),
        (lambda m: gradclip.Monitor(every=True), ValueError, "every must be a positive whole number"),
        (lambda m: gradclip.Monitor(each=0), ValueError, "each must be a positive whole number"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_lost(call: Any, kind: type[Exception], message: str) -> None:
    monitor = told([1.0, 2.0, 5.0])
    before = monitor.state_dict()
    with pytest.raises(kind, match=message):
        call(monitor)
    assert monitor.state_dict() == before


def test_monitors_of_other_bins_or_other_groups() -> None:
    monitor, other = told([1.0]), state()
    operator.setitem(other["sections"][0]["before"], "per_octave", 4)
    with pytest.raises(ValueError, match="other bins"):
        monitor.load_state_dict(other)
    assert monitor.report()["steps"] == 1
    groups = gradclip.Monitor()
    result = gradclip.clip([np.array([3.0])], [gradclip.Group(optax.clip_by_global_norm(1.0))])
    groups.update(result)
    with pytest.raises(ValueError, match=r"different groups.*\n.*one rule and 1 groups"):
        monitor.merge(groups)
    with pytest.raises(ValueError, match="One monitor is for one rule"):
        monitor.update(result)
    assert monitor.report()["steps"] == 1
    monitor.merge(gradclip.Monitor())
    empty = gradclip.Monitor()
    empty.merge(groups)
    assert empty.report() == groups.report()


@settings(max_examples=20)
@given(st.lists(ANY, min_size=1, max_size=5))
def test_any_float_is_counted(values: list[float]) -> None:
    found = told(values).report()
    assert found["steps"] == len(values)
    assert found["not_finite"] == sum(not 0 <= x < math.inf for x in values)
