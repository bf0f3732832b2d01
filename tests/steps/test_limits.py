"""Limits that follow the run: they match their published formulas on every backend, eager and traced."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from hypothesis import given, settings
from hypothesis import strategies as st

import gradclip
from gradclip import limits
from gradclip.dialects import keras, optax
from gradclip.dialects import torch as dialect

pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
OFF = 2.0 ** (1 / 16) * (1 + 1e-6)
RNG = np.random.default_rng(0)
STREAM: list[float] = [float(n * (50 if i % 97 == 96 else 1)) for i, n in enumerate(np.exp(RNG.normal(size=600) * 0.4))]
PAPER: dict[str, Any] = {"warmup": 1, "at_first": math.inf}
ALL: dict[str, Any] = {
    "quantile": lambda: limits.quantile(0.9, warmup=10),
    "autoclip": lambda: limits.autoclip(warmup=5),
    "zclip": lambda: limits.zclip(),
    "log_norm": lambda: limits.log_norm(warmup=20),
    "deviations": lambda: limits.deviations(window=16, warmup=10),
    "spike": lambda: limits.spike(2.0, warmup=10),
    "schedule": lambda: limits.schedule(lambda step: 2.0 + step),
}


def run(limit: Any, norms: list[float]) -> Iterator[tuple[float, float]]:
    """Yield for each step the clipped norm, and the limit."""
    state = limit.init()
    for norm in norms:
        most = limit.limit(state)
        if norm > most and hasattr(limit, "target"):
            most = limit.target(state, norm)
        yield min(norm, most), most
        state = limit.observe(state, norm)


# ---- the formulas, implemented again ---------------------------------------------------------------------------------------


def zclip(norms: list[float], alpha: float = 0.97, z0: float = 2.5, eps: float = 1e-6) -> Iterator[float]:
    """ZClip as its authors' code computes it, with the buffer."""
    mean = var = math.nan
    for i, n in enumerate(norms):
        if i < 25:
            yield min(n, 1.0)
            if i == 24:
                mean, var = float(np.mean(norms[:25])), float(np.var(norms[:25]))
            continue
        z = (n - mean) / (math.sqrt(var) + eps)
        clipped = mean + z0 * math.sqrt(var) / (z / z0) if z > z0 else n
        yield clipped
        mean = alpha * mean + (1 - alpha) * clipped
        var = alpha * var + (1 - alpha) * (clipped - mean) ** 2


def log_norm(norms: list[float], warmup: int, decay: float = 0.995) -> Iterator[float]:
    weight = first = second = 0.0
    for i, n in enumerate(norms):
        mean = first / max(weight, 1e-6)
        cap = math.exp(mean + 4.0 * math.sqrt(max(second / max(weight, 1e-6) - mean * mean, 1e-6))) if i >= warmup else 1.0
        yield min(n, cap)
        log = math.log(min(n, cap) if i >= warmup else n)
        weight, first, second = (x + (1 - decay) * (y - x) for x, y in ((weight, 1.0), (first, log), (second, log * log)))


def test_zclip_is_that_of_its_authors() -> None:
    got = [clipped for clipped, _ in run(limits.zclip(), STREAM)]
    np.testing.assert_allclose(got, list(zclip(STREAM)), rtol=1e-9)


def test_log_norm_is_that_of_rnmt() -> None:
    got = [clipped for clipped, _ in run(limits.log_norm(warmup=20), STREAM)]
    np.testing.assert_allclose(got, list(log_norm(STREAM, 20)), rtol=1e-9)


def test_autoclip_is_the_percentile_of_all_norms_before() -> None:
    for i, (_, limit) in enumerate(run(limits.autoclip(30.0, winsor=math.inf, **PAPER), STREAM)):
        exact = np.quantile(STREAM[:i], 0.3, method="inverted_cdf") if i else math.inf
        assert limit == exact or exact / OFF <= limit <= exact * OFF, i
    with_limit = [limit for _, limit in run(limits.autoclip(30.0, **PAPER), STREAM)]
    assert with_limit == [limit for _, limit in run(limits.autoclip(30.0, winsor=math.inf, **PAPER), STREAM)]


def test_the_quantile_of_a_run_with_decay() -> None:
    for i, (_, limit) in enumerate(run(limits.quantile(0.9, decay=0.98, warmup=50, winsor=math.inf), STREAM)):
        if i < 50:
            assert limit == 1.0
            continue
        weights = 0.98 ** np.arange(i)[::-1]
        order = np.argsort(STREAM[:i])
        cumulative = np.cumsum(weights[order]) / weights.sum()
        exact = STREAM[order[np.searchsorted(cumulative, 0.9 - 1e-9)]]
        assert exact / OFF <= limit <= exact * OFF, i


def test_deviations_is_that_of_olmo() -> None:
    """Without spikes, which there count in full."""
    calm = [n for i, n in enumerate(STREAM) if i % 97 != 96]
    for i, (_, limit) in enumerate(run(limits.deviations(), calm)):
        past = calm[max(i - 128, 0) : i]
        assert limit == (pytest.approx(np.mean(past) + 6 * np.std(past, ddof=1), rel=1e-9) if i >= 64 else math.inf), i


def test_a_spike_counts_as_much_as_the_limit() -> None:
    for made, norms in ((limits.deviations(window=8, warmup=4), [1.0, 2.0] * 5), (limits.spike(3.0, warmup=4), [2.0] * 8)):
        state = made.init()
        for n in norms:
            state = made.observe(state, n)
        spiked, at_most = (made.observe(state, n) for n in (1e9, made.limit(state)))
        assert made.limit(spiked) == made.limit(at_most)


def test_spike_is_a_multiple_of_the_average() -> None:
    total = weight = 0.0
    for i, (clipped, limit) in enumerate(run(limits.spike(4.0, decay=0.9), STREAM)):
        assert limit == (pytest.approx(4.0 * total / weight, rel=1e-9) if i >= 20 else math.inf), i
        total, weight = 0.9 * total + 0.1 * clipped, 0.9 * weight + 0.1


def test_equal_norms_are_no_spikes(backend: Framework) -> None:
    """Rounding makes no norm larger than itself."""
    rule = dataclasses.replace(optax.clip_by_global_norm(1.0), skip_above=gradclip.Adaptive(limits.deviations(warmup=5)))
    assert not any(bool(gradclip.clip([backend.make(np.array([0.1]))], rule).skip) for _ in range(40))


def adagc(steps: list[list[float]], beta: float = 0.98, relative: float = 1.05, warmup: int = 100) -> Iterator[list[float]]:
    average: list[float] = []
    for t, norms in enumerate(steps):
        if t < warmup:
            clipped = [n * min(1.0 / math.hypot(*norms), 1.0) for n in norms]
            average = clipped if t == 0 else list(map(min, average, clipped))
        else:
            clipped = [min(n, relative * a) for n, a in zip(norms, average, strict=True)]
            average = [beta * a + (1 - beta) * n for a, n in zip(average, clipped, strict=True)]
        yield clipped


def test_adagc_is_that_of_its_paper(backend: Framework) -> None:
    steps = np.exp(np.random.default_rng(1).normal(size=(160, 3))).tolist()
    rule = keras.clipnorm(limits.Adaptive(limits.adagc()))
    for norms, want in zip(steps, adagc(steps), strict=True):
        grads = [backend.make(np.array([norms[0]])), None, *(backend.make(np.array([n])) for n in norms[1:])]
        result = gradclip.clip(grads, rule)
        got = [float(backend.read(x)[0]) for x in result.grads if x is not None]
        np.testing.assert_allclose(got, want, rtol=1e-4)
        np.testing.assert_allclose([float(n) for n in result.norm if n is not None], norms, rtol=1e-6)


@pytest.mark.drawn(2)
@pytest.mark.needs("jits")
def test_adagc_is_carried_through_a_trace(backend: Framework, way: str) -> None:
    steps = np.exp(np.random.default_rng(1).normal(size=(40, 2)))
    made = gradclip.Step(keras.clipnorm(gradclip.Adaptive(limits.adagc(warmup=15))))
    state = made.init([backend.make(np.zeros(1))] * 2)
    names = list(state["limits"][0])

    def step(given: list[Any]) -> list[Any]:
        seen = {
            "limits": [dict(zip(names, given[:-4], strict=True))],
            "skips": dict(zip(state["skips"], given[-4:-2], strict=True)),
        }
        result, after = made.update(given[-2:], seen)
        return [*after["limits"][0].values(), *after["skips"].values(), *result.grads]

    stepped = backend.jit(way, step) if way else step
    carried = [*state["limits"][0].values(), *state["skips"].values()]
    for norms, want in zip(steps, adagc(steps.tolist(), warmup=15), strict=True):
        *carried, one, other = stepped([*carried, *(backend.make(np.array([n])) for n in norms)])
        np.testing.assert_allclose([backend.read(one)[0], backend.read(other)[0]], want, rtol=1e-4)
    np.testing.assert_array_equal(backend.read(carried[names.index("count")]), [40.0, 40.0])


# ---- on the tensors of a framework -----------------------------------------------------------------------------------------


@pytest.mark.drawn(8, torch=4, tensorflow=4, paddle=5)
@pytest.mark.parametrize("name", ALL)
def test_tensors_say_what_numbers_say(backend: Framework, name: str, way: str) -> None:
    limit = ALL[name]()
    want, got = limit.init(), limits.tensors(limit.init(), backend.make(0.0))
    names = list(got)

    def step(given: list[Any]) -> list[Any]:
        *state, norm = given
        after = limit.observe(dict(zip(names, state, strict=True)), norm)
        return [*(after[x] for x in names), limit.limit(after)]

    stepped = backend.jit(way, step) if way else step
    for norm in [1.0, 2.0, 3.0, *STREAM[:40], math.nan, 0.0, math.inf, 2.0, 1e6, 1.5]:
        want = limit.observe(want, norm)
        *state, now = stepped([*got.values(), backend.make(norm)])
        got = dict(zip(names, state, strict=True))
        if math.isfinite(norm):
            assert float(backend.read(now)) == pytest.approx(limit.limit(want), rel=1e-3), norm
    for key, x in want.items():
        np.testing.assert_allclose(backend.read(got[key]), x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_a_rule_takes_it_where_it_takes_a_number(backend: Framework, name: str) -> None:
    adaptive = gradclip.Adaptive(ALL[name]())
    rule = optax.clip_by_global_norm(adaptive)
    for norm, (clipped, most) in zip(STREAM[:120], run(ALL[name](), STREAM[:120]), strict=True):
        result = gradclip.clip([backend.make(np.array([norm]))], rule)
        assert float(backend.read(result.grads[0])[0]) == pytest.approx(clipped, rel=1e-4)
        assert float(result.norm) == pytest.approx(norm, rel=1e-6)
        assert float(adaptive.last) == pytest.approx(min(most, 1e300), rel=1e-4) or math.isinf(most)


def test_groups_have_limits_of_their_own(backend: Framework) -> None:
    one, other = (gradclip.Adaptive(limits.quantile(0.5, warmup=2, at_first=first)) for first in (1.0, 100.0))
    rules = [gradclip.Group(dialect.clip_grad_norm(one), "a"), gradclip.Group(dialect.clip_grad_norm(other))]
    for _ in range(3):
        grads = {name: backend.make(np.array([size])) for name, size in (("a", 3.0), ("b", 50.0))}
        result = gradclip.clip(grads, rules)
    assert [float(n) for n in result.norm] == [3.0, 50.0]
    assert float(one.last) == pytest.approx(3.0, rel=0.045)
    assert float(other.last) == pytest.approx(50.0, rel=0.045)


def test_in_two_stages_it_is_observed_once(backend: Framework) -> None:
    adaptive = gradclip.Adaptive(limits.quantile(0.9, warmup=1, at_first=1.0))
    rule, grads = dialect.clip_grad_norm(adaptive), [backend.make(np.array([3.0]))]
    n = gradclip.norm(grads, rule)
    assert adaptive.state["count"] == 0
    gradclip.scale_by_norm(grads, rule, n)
    assert adaptive.state["count"] == 1


@pytest.mark.needs("jits")
def test_a_traced_clip_says_how(backend: Framework) -> None:
    """Paddle's to_static runs the clip as plain Python between two programs; nothing is traced there."""
    for how in backend.jits:
        adaptive = gradclip.Adaptive(limits.quantile(0.9))
        rule = dialect.clip_grad_norm(adaptive)
        step = backend.jit(how, lambda xs, rule=rule: [gradclip.clip(xs, rule).grads[0]])
        says = ""
        try:
            step([backend.make(np.array([3.0]))])
        except Exception as error:
            says = str(error)
        assert ("cannot be traced" in says) == (float(adaptive.state["count"]) == 0)
        assert says or backend.name == "paddle"


# ---- properties of every limit ---------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.lists(st.sampled_from([0.0, math.nan, math.inf, 1e30, 0.5, 1.0, 2.0]), max_size=60), st.integers(0, 60))
@pytest.mark.parametrize("name", ALL)
def test_a_checkpoint_is_the_same_to_the_bit(name: str, norms: list[float], at: int) -> None:
    whole, first = gradclip.Adaptive(ALL[name]()), gradclip.Adaptive(ALL[name]())
    given_ = [whole.step(norm) for norm in norms]
    begun = [first.step(norm) for norm in norms[:at]]
    second = gradclip.Adaptive(ALL[name]())
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert repr([*begun, *(second.step(norm) for norm in norms[at:])]) == repr(given_)
    assert repr(second.state) == repr(whole.state)


def test_it_begins_anew_after_so_many_refusals() -> None:
    for limit in (
        limits.zclip(patience=20),
        limits.quantile(0.9, warmup=10, patience=20),
        limits.log_norm(warmup=10, patience=20),
    ):
        state = limit.init()
        for n in itertools.chain([1.0, 1.1] * 50, [1e6] * 80):
            state = limit.observe(state, n)
        assert 1e5 < limit.limit(state) < 1e8
        for n in [math.nan] * 20:
            state = limit.observe(state, n)
        assert limit.limit(state) == 1.0
        assert state["count"] == 0


class Stateless:
    """A limit of the user's own, of which nothing has to be kept."""

    def init(self) -> dict[str, Any]:
        return {}

    def limit(self, state: dict[str, Any]) -> float:
        return 2.5

    def observe(self, state: dict[str, Any], norm: Any) -> dict[str, Any]:
        return state


def test_a_limit_may_have_no_state(backend: Framework) -> None:
    limit = gradclip.Adaptive(Stateless())
    result = gradclip.clip([backend.make([3.0, 4.0])], optax.clip_by_global_norm(limit))
    assert backend.read(result.grads[0]).tolist() == [1.5, 2.0]
    assert limit.state_dict()["state"] == {}


OTHER = gradclip.Adaptive(limits.quantile()).state_dict()

# ---- errors ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: gradclip.Adaptive(1.0), TypeError, "A limit has no init and no limit and no observe"),
        (lambda: dialect.clip_grad_norm(gradclip.Adaptive), TypeError,
         r"the class Adaptive\nHint: make one: gradclip\.Adaptive\("),
        (lambda: dataclasses.replace(dialect.clip_grad_norm(1.0), skip_above=gradclip.Adaptive), TypeError,
         "skip_above must be a number or a tensor"),
        (lambda: limits.quantile(1.5), ValueError, "q must lie between"),
        (lambda: limits.quantile(0.5, warmup=0), ValueError, "warmup must be positive"),
        (lambda: limits.zclip(alpha=1.0), ValueError, "alpha must lie between"),
        (lambda: limits.log_norm(decay=0.0), ValueError, "decay must lie between"),
        (lambda: limits.adagc(beta=2.0), ValueError, "beta must lie between"),
        (lambda: limits.tensors({"count": 0.0}, None), TypeError, "like must be a tensor"),
        (lambda: limits.schedule(1.0), TypeError, "A schedule is a function"),
        (lambda: gradclip.Adaptive(limits.zclip()).load_state_dict({}), ValueError, "of another version"),
        (lambda: gradclip.Adaptive(limits.zclip()).load_state_dict(OTHER), ValueError, "of another limit"),
        (lambda: gradclip.clip(np.ones(1), keras.clipnorm(gradclip.Adaptive(limits.zclip()))), ValueError, "follows one norm"),
        (lambda: gradclip.clip(np.ones(1), dialect.clip_grad_norm(gradclip.Adaptive(limits.adagc()))), ValueError,
         "follows the norm of each gradient"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
