"""A norm is never narrower than float32: gradients of 300 in float16 have a norm that float16 cannot represent."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import ulps
from rules import kinds

import gradclip
from gradclip import limits
from gradclip.dialects import keras, optax, tensorflow, torch

pytestmark = [
    pytest.mark.accuracy,
    pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning"),
]
Found = Callable[[list[Any]], list[Any]]  #: gradients -> norms and coefficients

NARROW = ("float16", "bfloat16")
SHAPE = (250, 240)
EXACT = 300 * math.sqrt(math.prod(SHAPE))  # 73,485; the largest float16 is 65,504
RULES = {name: make(1.0) for name, make in kinds(lambda rule: not rule.is_by_value and rule.relative_to is None).items()}
RULES["zeros"] = dataclasses.replace(torch.clip_grad_norm(1.0), if_nonfinite="zero")
DROPINS: dict[str, Found] = {
    "get_total_norm": lambda grads: [gradclip.get_total_norm(grads)],
    "get_total_norm, order 1": lambda grads: [gradclip.get_total_norm(grads, 1.0)],
    "get_total_norm, order inf": lambda grads: [gradclip.get_total_norm(grads, math.inf)],
    "global_norm": lambda grads: [gradclip.global_norm(grads)],
    "clip_by_global_norm": lambda grads: [gradclip.clip_by_global_norm(grads, 1.0)[1]],
    "norms_by_name": lambda grads: list(gradclip.norms_by_name(grads).values()),
}
FUNCTIONS: dict[str, dict[str, Found]] = {
    "drop-ins": DROPINS,
    "clip": {name: lambda grads, rule=rule: _flat(gradclip.clip(grads, rule)) for name, rule in RULES.items()},
    "norm": {name: lambda grads, rule=rule: _leaves(gradclip.norm(grads, rule)) for name, rule in RULES.items()},
    "groups": {
        name: lambda grads, rule=rule: _flat(gradclip.clip(grads, [gradclip.Group(rule)])) for name, rule in RULES.items()
    },
}


def _leaves(found: Any) -> list[Any]:
    return [x for n in found for x in _leaves(n)] if isinstance(found, (list, tuple)) else [found]


def _flat(result: gradclip.ClipResult) -> list[Any]:
    """The norms and the coefficients."""
    return [*_leaves(result.norm), *_leaves(result.coefficient)]


def many(backend: Framework, dtype: str) -> list[Any]:
    return [backend.make(np.full(SHAPE, 300.0), dtype)]


def at_least_float32(backend: Framework, found: list[Any], dtype: str = "float32", name: str = "", way: str = "") -> None:
    """All are finite and of this dtype; a program of Paddle leaves one norm over all in the float64 that it is summed in."""
    assert found
    allowed = {dtype, "float64"} if backend.name == "paddle" and way else {dtype}
    for n in found:
        assert backend.dtype(n) in allowed, f"{name}: {n}"
        assert np.isfinite(backend.read(n)).all(), f"{name}: {n}"


# ---- what each function returns ---------------------------------------------------------------------------------------------


@pytest.mark.drawn(6, numpy=16, torch=4)
@pytest.mark.parametrize("dtype", [*NARROW, "float32", "float64", "complex64"])
@pytest.mark.parametrize("part", FUNCTIONS)
def test_no_norm_or_coefficient_is_narrower_than_float32(backend: Framework, part: str, dtype: str, way: str) -> None:
    counts: list[int] = []

    def every(grads: list[Any]) -> list[Any]:
        """All functions in one trace, which takes seconds."""
        found = [function(grads) for function in FUNCTIONS[part].values()]
        counts[:] = map(len, found)
        return [n for of_one in found for n in of_one]

    found = iter((backend.jit(way, every) if way else every)(many(backend, dtype)))
    for name, count in zip(FUNCTIONS[part], counts, strict=True):
        wide = "float64" if dtype == "float64" else "float32"
        at_least_float32(backend, [next(found) for _ in range(count)], wide, name, way)
    assert list(found) == []


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", ["get_total_norm", "global_norm", "clip_by_global_norm"])
def test_the_norm_is_the_exact_one(backend: Framework, name: str, dtype: str, way: str) -> None:
    grads, function = many(backend, dtype), DROPINS[name]
    (found,) = (backend.jit(way, function) if way else function)(grads)
    assert ulps(backend.read(found), EXACT, "float32") <= backend.ulps


def test_mixed_gradients_have_a_norm_of_the_widest_dtype(backend: Framework) -> None:
    lists = {("float16", "bfloat16"): "float32", ("bfloat16", "float32"): "float32", ("float16", "float64"): "float64"}
    for dtypes, wide in lists.items():
        grads = [backend.make([300.0, 400.0], dtype) for dtype in dtypes]
        for name in ("get_total_norm", "global_norm", "clip_by_global_norm"):
            assert [backend.dtype(n) for n in DROPINS[name](grads)] == [wide]


@pytest.mark.needs("mutable")
@pytest.mark.parametrize("dtype", NARROW)
def test_in_place_too(backend: Framework, dtype: str) -> None:
    for params in ([backend.parameter(g) for g in many(backend, dtype)] if backend.holds_gradients else many(backend, dtype),):
        at_least_float32(backend, [gradclip.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)])
        result = gradclip.clip_(params, torch.clip_grad_norm(1e-3))
        at_least_float32(backend, _flat(result))
        assert backend.dtype(backend.gradient(params[0]) if backend.holds_gradients else params[0]) == dtype
    slot = gradclip.ClipGradByGlobalNorm(1.0)
    slot([("weight", many(backend, dtype)[0])])
    assert slot.last is not None
    at_least_float32(backend, _flat(slot.last))


@pytest.mark.parametrize("dtype", NARROW)
def test_a_trainer_that_skips_steps_without_a_finite_norm_skips_none(backend: Framework, dtype: str) -> None:
    """As in torchtitan, and in TensorFlow's and JAX's loops: measure, test the norm, clip by it."""
    steps = 0
    for scale in (1.0, 2.0, 64.0):
        grads = [backend.make(np.full(SHAPE, 300.0 * scale), dtype), backend.make([0.5], dtype), None]
        for measured in (gradclip.get_total_norm([g for g in grads if g is not None]), gradclip.global_norm(grads)):
            if not math.isfinite(float(measured)):
                continue
            clipped, returned = gradclip.clip_by_global_norm(grads, 100.0, use_norm=measured)
            assert returned is measured
            for rule in (torch.clip_grad_norm(100.0), keras.global_clipnorm(100.0)):
                clipped = gradclip.scale_by_norm(grads, rule, measured).grads
                kept = float(gradclip.global_norm(clipped))
                assert abs(kept - 100) < 100 * (2**-7 if dtype == "bfloat16" else 2**-10), kept
                assert backend.dtype(clipped[0]) == dtype
            steps += 1
    assert steps == 6


@pytest.mark.needs("mutable")
def test_two_stages_in_place(backend: Framework) -> None:
    params = [backend.parameter(g) for g in many(backend, "float16")] if backend.holds_gradients else many(backend, "float16")
    grads = [backend.gradient(p) for p in params] if backend.holds_gradients else params
    gradclip.clip_grads_with_norm_(params, 735.0, gradclip.get_total_norm(grads, error_if_nonfinite=True))
    new = backend.read(backend.gradient(params[0]) if backend.holds_gradients else params[0])
    assert ulps(new, np.full(SHAPE, 300 * 735 / EXACT), "float16") <= 1


def test_a_norm_that_is_not_finite_still_raises(backend: Framework) -> None:
    for dtype in NARROW:
        for bad in (math.inf, math.nan):
            with pytest.raises(RuntimeError, match="is non-finite"):
                gradclip.get_total_norm([backend.make([300.0, bad], dtype)], error_if_nonfinite=True)


# ---- known norms -------------------------------------------------------------------------------------------------------------


KNOWN: dict[str, gradclip.Rule] = {
    "one norm": torch.clip_grad_norm(1.0),
    "zeros": dataclasses.replace(torch.clip_grad_norm(1.0), if_nonfinite="zero"),
    "each": tensorflow.clip_by_norm(1.0),
    "rows": tensorflow.clip_by_norm(1.0, axes=[0]),
}


@pytest.mark.drawn(12, numpy=20)
@pytest.mark.parametrize("dtype", [*NARROW, "float8_e4m3fn", "int32"])
@pytest.mark.parametrize("name", KNOWN)
def test_a_known_norm_is_widened(backend: Framework, name: str, dtype: str, way: str) -> None:
    """A native's norm, or a stored one; while tracing it cannot be read."""
    rule, is_listed = KNOWN[name], name in ("each", "rows")

    def scaled(given: list[Any]) -> list[Any]:
        result = gradclip.scale_by_norm([given[0]], rule, [given[1]] if is_listed else given[1])
        return [result.grads[0], *_flat(result)]

    known = backend.make([16.0] if name == "rows" else 16.0, dtype)
    clipped, *found = (backend.jit(way, scaled) if way else scaled)([backend.make([3.0, 4.0], "float16"), known])
    at_least_float32(backend, found, way=way)
    assert backend.read(found[0]).reshape(-1).tolist() == [16.0]
    assert backend.dtype(clipped) == "float16"
    assert ulps(backend.read(clipped), np.array([3 / 16, 4 / 16]), "float16") <= 1


@pytest.mark.parametrize("dtype", [*NARROW, "float8_e4m3fn"])
def test_a_known_norm_that_comes_back_is_widened(backend: Framework, dtype: str) -> None:
    """Also without any gradient, where no backend checks it."""
    known = backend.make(16.0, dtype)
    for grads in ([backend.make([3.0, 4.0], "float16")], [None], []):
        at_least_float32(backend, [gradclip.clip_by_global_norm(grads, 1.0, use_norm=known)[1]])
        at_least_float32(backend, [gradclip.scale_by_norm(grads, optax.clip_by_global_norm(1.0), known).norm])
    for wide in (backend.make(16.0), backend.make(16.0, "float64"), 16.0):
        assert gradclip.clip_by_global_norm([backend.make([3.0], "float16")], 1.0, use_norm=wide)[1] is wide


def test_a_known_norm_for_a_limit_that_follows_the_run(backend: Framework) -> None:
    following = gradclip.Adaptive(limits.quantile(0.9, warmup=1, at_first=1.0))
    rule, grads = torch.clip_grad_norm(following), [backend.make([3.0, 4.0], "float16")]
    at_least_float32(backend, _flat(gradclip.scale_by_norm(grads, rule, backend.make(16.0, "float16"))))
    before = following.state_dict()
    assert before["state"] != limits.quantile(0.9, warmup=1, at_first=1.0).init()
    with pytest.raises(ValueError, match="A norm must not be negative"):  # such a norm is no observation
        gradclip.scale_by_norm(grads, rule, -5.0)
    assert following.state_dict() == before


def test_gradients_of_float8_are_refused(backend: Framework) -> None:
    """Their norm would need a scale; no function returns a norm in float8."""
    grads = [backend.make([1.0, 2.0], "float8_e4m3fn")]
    for name in ("get_total_norm", "get_total_norm, order inf", "global_norm", "clip_by_global_norm", "norms_by_name"):
        with pytest.raises(TypeError, match=r"dtype=float8_e4m3fn.*\nHint: cast it to one of float16"):
            DROPINS[name](grads)


# ---- the monitor, derivatives ------------------------------------------------------------------------------------------------


def test_a_monitor_counts_a_known_norm(backend: Framework, way: str) -> None:
    monitor = gradclip.Monitor()

    def step(given: list[Any]) -> list[Any]:
        gradient, known = given
        seen = monitor.init(like=gradient)
        seen = gradclip.observed(seen, gradclip.scale_by_norm([gradient], optax.clip_by_global_norm(1.0), known))
        return [seen["sections"][0][name] for name in ("before_total", "clipped", "not_finite")]

    given = [backend.make([3.0, 4.0], "float16"), backend.make(16.0, "float16")]
    found = (backend.jit(way, step) if way else step)(given)
    assert [float(backend.read(x)) for x in found] == [16.0, 1.0, 0.0]


@pytest.mark.needs("trains")
@pytest.mark.parametrize("name", ["global_norm", "clip_by_global_norm", "norm"])
def test_a_derivative_through_the_norm(backend: Framework, name: str) -> None:
    functions: dict[str, Callable[[list[Any]], Any]] = {
        "global_norm": gradclip.global_norm,
        "clip_by_global_norm": lambda grads: gradclip.clip_by_global_norm(grads, 1.0)[1],
        "norm": lambda grads: gradclip.norm(grads, optax.clip_by_global_norm(1.0)),
    }
    for dtype in NARROW:
        (slope,) = backend.derivative(functions[name], [backend.make([[300.0, -400.0]], dtype)])
        assert ulps(slope, np.array([[0.6, -0.8]]), dtype) <= 1
