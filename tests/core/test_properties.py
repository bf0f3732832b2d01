"""Properties of every rule that scales, for any gradients."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracle import norm, ratio, ulp, ulps
from rules import functions

import gradclip
from gradclip.dialects import optax, tensorflow, torch

settings.register_profile(
    "properties",
    settings.get_profile("gradclip"),
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("properties")

#: one Euclidean norm over all gradients, or one for each
RULES = functions(lambda rule: rule.scope.value in ("global", "tensor") and rule.order == 2 and not rule.mean)
rules = pytest.mark.parametrize("make_rule", RULES.values(), ids=RULES)

# float32 represents these magnitudes, and their products with a coefficient, without losing bits
numbers = st.floats(2.0**-40, 2.0**40, width=32) | st.floats(-(2.0**40), -(2.0**-40), width=32) | st.just(0.0)
shapes = st.sampled_from([(), (0,), (1,), (5,), (2, 3), (3, 1), (2, 1, 3)])  # few shapes: XLA compiles each
arrays = shapes.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=numbers))
gradients = st.lists(arrays | st.none(), min_size=1, max_size=4).filter(lambda grads: any(g is not None for g in grads))
bounds = st.floats(0, 100, width=32, allow_subnormal=False)
limits = st.floats(2.0**-20, 2.0**20, width=32)


def make(backend: Framework, grads: list[np.ndarray | None]) -> list[Any]:
    return [None if g is None else backend.make(g) for g in grads]


def read(backend: Framework, grads: list[Any]) -> list[np.ndarray | None]:
    return [None if g is None else backend.read(g) for g in grads]


def norms_of(rule: gradclip.Rule, grads: list[np.ndarray | None]) -> list[float]:
    """Return the norm or norms that the rule limits, in float64."""
    each = [float(norm(g.astype(np.float64), 2.0)) for g in grads if g is not None]
    return [math.hypot(*each)] if rule.scope is gradclip.Scope.GLOBAL else each


@rules
@given(grads=gradients, limit=limits)
def test_never_above_the_limit(backend: Framework, make_rule: Any, grads: list[Any], limit: float) -> None:
    rule = make_rule(limit)
    clipped = read(backend, gradclip.clip(make(backend, grads), rule).grads)
    for after in norms_of(rule, clipped):
        assert after <= limit + 4 * ulp(limit, "float32")


@rules
@given(grads=gradients)
def test_unclipped_is_the_input_to_the_bit(backend: Framework, make_rule: Any, grads: list[Any]) -> None:
    rule = make_rule(1.0)
    above = max(norms_of(rule, grads)) * 1.001 + 1e-5
    result = gradclip.clip(make(backend, grads), make_rule(above))
    for got, g in zip(read(backend, result.grads), grads, strict=True):
        assert (got is None) == (g is None)
        assert g is None or (np.array_equal(got, g) and np.array_equal(np.signbit(got), np.signbit(g)))
    coefficients = result.coefficient if isinstance(result.coefficient, list) else [result.coefficient]
    assert all(c in (None, 1.0) for c in coefficients)


@rules
@given(grads=gradients, limit=limits, order=st.randoms(use_true_random=False))
def test_order_does_not_matter(backend: Framework, make_rule: Any, grads: list[Any], limit: float, order: Any) -> None:
    places = list(range(len(grads)))
    order.shuffle(places)
    straight = read(backend, gradclip.clip(make(backend, grads), make_rule(limit)).grads)
    shuffled = read(backend, gradclip.clip(make(backend, [grads[i] for i in places]), make_rule(limit)).grads)
    for i, got in zip(places, shuffled, strict=True):
        assert grads[i] is None or ulps(got, straight[i], "float32") <= 2


@rules
@given(grads=gradients, limit=limits)
def test_idempotent(backend: Framework, make_rule: Any, grads: list[Any], limit: float) -> None:
    """Clipping twice equals clipping once, except that torch's epsilon shrinks the gradient a little more each time."""
    rule = make_rule(limit)
    once = gradclip.clip(make(backend, grads), rule).grads
    twice = read(backend, gradclip.clip(once, rule).grads)
    shrink = float(ratio(limit, limit, rule.eps))
    for got, g in zip(twice, read(backend, once), strict=True):
        if g is not None:
            assert np.all(np.abs(got - g) <= 4 * ulp(g, "float32") + np.abs(g) * (1 - shrink))


@rules
@given(grads=gradients, limit=limits, exponent=st.integers(-8, 8))
def test_scales_with_the_gradient(backend: Framework, make_rule: Any, grads: list[Any], limit: float, exponent: int) -> None:
    """Scaling gradients and limit by a power of two scales the result, except for torch's epsilon, which is absolute."""
    factor = 2.0**exponent
    plain = read(backend, gradclip.clip(make(backend, grads), make_rule(limit)).grads)
    scaled_grads = [None if g is None else g * np.float32(factor) for g in grads]
    scaled = read(backend, gradclip.clip(make(backend, scaled_grads), make_rule(limit * factor)).grads)
    slack = make_rule(limit).eps * (1 + 1 / factor) / limit
    for got, g in zip(scaled, plain, strict=True):
        if g is not None:
            want = g * factor
            assert np.all(np.abs(got - want) <= 4 * ulp(want, "float32") + np.abs(want) * slack)


@given(array=arrays.filter(lambda a: a.ndim > 0), limit=limits, data=st.data())
def test_any_axes(backend: Framework, array: np.ndarray, limit: float, data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(-array.ndim, array.ndim - 1), unique_by=lambda axis: axis % array.ndim))
    got = backend.read(gradclip.clip_by_norm(backend.make(array), limit, axes=axes))
    exact = array.astype(np.float64)
    lengths = norm(exact, 2.0, tuple(axis % array.ndim for axis in axes))
    assert ulps(got, exact * ratio(lengths, limit), "float32") <= 4


@given(grads=gradients, lower=bounds.map(lambda bound: -bound), upper=bounds)
def test_by_value(backend: Framework, grads: list[Any], lower: float, upper: float) -> None:
    clipped = read(backend, gradclip.clip(make(backend, grads), tensorflow.clip_by_value(lower, upper)).grads)
    for got, g in zip(clipped, grads, strict=True):
        assert g is None or np.array_equal(got, np.maximum(np.minimum(g, np.float32(upper)), np.float32(lower)))


@rules
@pytest.mark.parametrize("limit", [1.0, 100.0], ids=["clipped", "unclipped"])
def test_no_aliasing(backend: Framework, make_rule: Any, limit: float) -> None:
    """Writing to the result of a functional form does not change the input."""
    grads = make(backend, [np.array([3.0, 4.0]), np.array([[0.5]])])
    before = read(backend, grads)
    result = gradclip.clip(grads, make_rule(limit)).grads
    if backend.mutable:
        gradclip.clip_(result, optax.clip(0.0))
        assert all(not backend.read(r).any() for r in result)
    assert all(np.array_equal(a, b) for a, b in zip(read(backend, grads), before, strict=True))


@rules
def test_twice_in_a_list_counts_once(backend: Framework, make_rule: Any) -> None:
    gradient = backend.make([3.0, 4.0])
    result = gradclip.clip([gradient, gradient], make_rule(1.0))
    for got in result.grads:
        assert ulps(backend.read(got), [0.6, 0.8], "float32") <= 4 + 2 * make_rule(1.0).eps / 1e-7
    if backend.mutable:
        gradclip.clip_([gradient, gradient], make_rule(1.0))
        assert ulps(backend.read(gradient), [0.6, 0.8], "float32") <= 4 + 2 * make_rule(1.0).eps / 1e-7


@rules
@pytest.mark.parametrize("values", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, np.nan]])
def test_not_finite(backend: Framework, make_rule: Any, values: list[float]) -> None:
    """NaN spreads to all gradients that share a norm; an infinity becomes NaN, the rest 0 (TensorFlow's global clip: NaN)."""
    rule = make_rule(1.0)
    grads = [backend.make(values), backend.make([3.0, 4.0])]
    first, second = read(backend, gradclip.clip(grads, rule).grads)
    shared = rule.scope is gradclip.Scope.GLOBAL
    if np.isnan(values).any() or rule.nan_if_infinite:
        assert np.isnan(first).all()
        assert np.isnan(second).all() == shared
    else:
        assert np.isnan(first[0])
        assert first[1] == 0
        assert (second == 0).all() == shared


@pytest.mark.accuracy
def test_a_limit_that_the_dtype_lacks_clips_nothing_finite(backend: Framework, way: str) -> None:
    def clip(grads: list[Any]) -> list[Any]:
        return list(gradclip.clip(grads, torch.clip_grad_norm(1e39)).grads)

    values = np.array([3e38, 0.0], np.float32)
    [clipped] = (backend.jit(way, clip) if way else clip)([backend.make(values)])
    assert backend.read(clipped).tolist() == values.tolist()


@pytest.mark.accuracy
def test_the_addend_counts_for_each_gradient_too(backend: Framework, way: str) -> None:
    """No native has an ``eps`` beside a norm for each gradient; a rule of one's own may."""

    def clip(grads: list[Any]) -> list[Any]:
        return list(gradclip.clip(grads, dataclasses.replace(tensorflow.clip_by_norm(2.0), eps=3.0)).grads)

    clipped = (backend.jit(way, clip) if way else clip)([backend.make([3.0, 4.0]), backend.make([1.0])])
    assert [backend.read(x).tolist() for x in clipped] == [[0.75, 1.0], [0.5]]
