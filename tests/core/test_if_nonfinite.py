"""A norm that is not finite propagates, raises, or makes its gradients zero, by a select that reads no value."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip.core.registry import find
from gradclip.dialects import keras, optax, tensorflow
from gradclip.dialects import torch as dialect

pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
ZERO = dataclasses.replace(dialect.clip_grad_norm(1.0), if_nonfinite="zero")
EACH = dataclasses.replace(keras.clipnorm(1.0), if_nonfinite="zero")


def read(backend: Framework, grads: Any) -> list[list[float]]:
    return [backend.read(x).tolist() for x in grads]


def made(backend: Framework, *values: list[float]) -> list[Any]:
    return [backend.make(np.array(value)) for value in values]


def number(backend: Framework, x: Any) -> Any:
    """An int, or a tensor of one, as a float tensor that a compiled function can return."""
    owner = find(x)
    return backend.make(float(x)) if owner is None else owner.cast(x, "float32")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_gradients_of_such_a_step_become_zeros(backend: Framework, bad: float) -> None:
    for how in ("", *backend.jits):
        step = (lambda xs: gradclip.clip(xs, ZERO).grads) if not how else None
        step = step or backend.jit(how, lambda xs: gradclip.clip(xs, ZERO).grads)
        assert read(backend, step(made(backend, [1.0, bad], [2.0]))) == [[0.0, 0.0], [0.0]]
        np.testing.assert_allclose(read(backend, step(made(backend, [3.0, 0.0], [4.0])))[1], 0.8, rtol=1e-5)
        assert read(backend, step(made(backend, [0.3], [0.4]))) == [pytest.approx([0.3]), pytest.approx([0.4])]


def test_the_norm_says_so_and_the_coefficient_is_0(backend: Framework) -> None:
    monitor = gradclip.Monitor()
    result = gradclip.clip(made(backend, [1.0, math.nan], [2.0]), ZERO)
    monitor.update(result)
    assert math.isnan(float(result.norm))
    assert float(result.coefficient) == 0.0
    assert (monitor.report()["not_finite"], monitor.report()["clipped_steps"]) == (1, 0)


def test_each_gradient_by_its_own_norm(backend: Framework) -> None:
    grads = [*made(backend, [math.inf, 1.0], [2.0]), None]
    result = gradclip.clip(grads, EACH)
    assert read(backend, result.grads[:2]) == [[0.0, 0.0], [1.0]]
    assert [None if c is None else float(c) for c in result.coefficient] == [0.0, 0.5, None]


@pytest.mark.needs("mutable")
def test_in_place(backend: Framework) -> None:
    for rule in (ZERO, EACH):
        grads = made(backend, [math.nan, 1.0], [2.0])
        gradclip.clip_(grads, rule)
        assert read(backend, grads)[0] == [0.0, 0.0]
        assert read(backend, grads)[1] == ([0.0] if rule is ZERO else [1.0])


@pytest.mark.needs("has_sparse")
def test_sparse(backend: Framework) -> None:
    result = gradclip.clip([backend.sparse([0, 2], np.array([[math.nan], [1.0]]), 4)], ZERO)
    assert backend.is_sparse(result.grads[0])
    assert not backend.densify(result.grads[0]).any()


def test_groups(backend: Framework) -> None:
    grads = dict(zip("ab", made(backend, [math.nan], [2.0]), strict=True))
    rules = [gradclip.Group(ZERO, "a"), gradclip.Group(optax.clip_by_global_norm(1.0))]
    result = gradclip.clip(grads, rules)
    assert read(backend, result.grads.values()) == [[0.0], [1.0]]
    assert [float(c) for c in result.coefficient] == [0.0, 0.5]


def test_raise_is_error_if_nonfinite(backend: Framework) -> None:
    rule = dataclasses.replace(optax.clip_by_global_norm(1.0), if_nonfinite="raise")
    assert rule.error_if_nonfinite
    with pytest.raises(RuntimeError, match=r"non-finite(.|\n)*\[0\]: 1 of 2 elements"):
        gradclip.clip(made(backend, [math.nan, 1.0]), rule)


def test_without_it_what_is_not_finite_goes_on(backend: Framework) -> None:
    rule = dialect.clip_grad_norm(1.0)
    assert rule.if_nonfinite == "propagate"
    assert np.isnan(read(backend, gradclip.clip(made(backend, [math.nan, 1.0]), rule).grads)[0]).all()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match='must be "propagate", "raise", "zero" or "skip"'):
        dataclasses.replace(ZERO, if_nonfinite="stop")
    with pytest.raises(ValueError, match="is for a rule with a norm"):
        dataclasses.replace(dialect.clip_grad_value(1.0), if_nonfinite="zero")


@pytest.mark.drawn(2)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_example_that_is_not_finite_counts_as_zeros(backend: Framework, bad: float) -> None:
    rule = dataclasses.replace(optax.per_example_global_norm_clip(1.0), if_nonfinite="zero")
    examples = [np.array([[3.0, 0.0], [bad, 1.0], [0.3, 0.0]]), np.array([[4.0], [2.0], [0.4]])]
    for how in ("", *backend.jits):

        def step(xs: list[Any]) -> list[Any]:
            result = gradclip.clip(xs, rule)
            return [*result.grads, number(backend, result.zeroed), result.coefficient]

        found = read(backend, (backend.jit(how, step) if how else step)(made(backend, *examples)))
        np.testing.assert_allclose(found[0], [0.9, 0.0], rtol=1e-5)
        np.testing.assert_allclose(found[1], [1.2], rtol=1e-5)
        assert found[2] == 1.0
        np.testing.assert_allclose(found[3], [0.2, 0.0, 1.0], rtol=1e-5)


def test_a_slice_that_is_not_finite_counts_as_zeros(backend: Framework) -> None:
    rule = dataclasses.replace(tensorflow.clip_by_norm(1.0, axes=[1]), if_nonfinite="zero")
    grads = made(backend, [[3.0, 4.0], [math.nan, 1.0], [0.3, 0.4]], [[math.inf, 1.0]])
    result = gradclip.clip(grads, rule)
    np.testing.assert_allclose(read(backend, result.grads)[0], [[0.6, 0.8], [0.0, 0.0], [0.3, 0.4]], rtol=1e-5)
    assert read(backend, result.grads)[1] == [[0.0, 0.0]]
    assert int(result.zeroed) == 2
    if backend.mutable:
        gradclip.clip_(grads, rule)
        np.testing.assert_allclose(read(backend, grads)[0], [[0.6, 0.8], [0.0, 0.0], [0.3, 0.4]], rtol=1e-5)


def test_the_result_says_how_many_became_zeros(backend: Framework) -> None:
    grads = made(backend, [math.nan, 1.0], [2.0], [math.inf])
    assert [int(gradclip.clip(grads, rule).zeroed) for rule in (ZERO, EACH, keras.clipnorm(1.0))] == [1, 2, 0]
    assert [int(gradclip.clip(grads[1:2], rule).zeroed) for rule in (ZERO, EACH)] == [0, 0]
    groups = [gradclip.Group(ZERO, "0"), gradclip.Group(EACH)]
    assert int(gradclip.clip(grads, groups).zeroed) == 2


@pytest.mark.parametrize("known", [math.inf, math.nan])
def test_a_known_norm_that_is_not_finite_looks_at_no_gradient(backend: Framework, known: float) -> None:
    rule = dialect.clip_grad_norm(1.0)
    eager = read(backend, gradclip.scale_by_norm(made(backend, [3.0, 4.0]), rule, known).grads)
    for how in backend.jits:
        step = backend.jit(how, lambda xs: gradclip.scale_by_norm(xs, rule, known).grads)
        np.testing.assert_array_equal(read(backend, step(made(backend, [3.0, 4.0]))), eager)
