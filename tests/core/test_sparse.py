"""Sparse gradients: duplicate rows are merged before the norm, the result is sparse, and no gradient is made dense."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import CASES, Case, ulps

import gradclip
from gradclip.dialects import optax, paddle, tensorflow, torch

ROWS, VALUES, HEIGHT = [0, 2, 2], [[3.0, 0.0], [2.0, 1.0], [2.0, -1.0]], 4
DENSE = np.array([[3.0, 0.0], [0.0, 0.0], [4.0, 0.0], [0.0, 0.0]])  # norm 5; without merging the rows 4.36


pytestmark = pytest.mark.needs("has_sparse")
SPARSE = [(name, case) for name, case in CASES if not case.needs & {"batch", "params"}]


@pytest.mark.parametrize("limit", [1.0, 100.0], ids=["clipped", "unclipped"])
@pytest.mark.parametrize(("limit_name", "case"), SPARSE, ids=[str(case) for _, case in SPARSE])
def test_as_dense(backend: Framework, limit_name: str, case: Case, limit: float) -> None:
    dialect = importlib.import_module(f"gradclip.dialects.{case.dialect}")
    rule = getattr(dialect, case.function)(**{limit_name: limit}, **case.arguments)
    gradient, dense = backend.sparse(ROWS, VALUES, HEIGHT), backend.make([1.0, 2.0])
    result = gradclip.clip([gradient, None, dense], rule)
    want, _ = case.formula([DENSE, None, np.array([1.0, 2.0])], limit)
    assert backend.is_sparse(result.grads[0])
    assert not backend.is_sparse(result.grads[2])
    assert ulps(backend.densify(result.grads[0]), want[0], "float32") <= 4
    assert ulps(backend.read(result.grads[2]), want[2], "float32") <= 4
    assert np.array_equal(backend.densify(gradient), DENSE), "the functional form wrote to its input"


def test_norms(backend: Framework) -> None:
    gradient = backend.sparse(ROWS, VALUES, HEIGHT)
    for order, want in ((2.0, 5.0), (1.0, 7.0), (np.inf, 4.0), (0.0, 1.0), (-np.inf, 0.0), (-1.0, 0.0)):
        assert gradclip.norm([gradient], torch.clip_grad_norm(1.0, order)) == want
    assert gradclip.norm([gradient], optax.clip_by_block_rms(1.0)) == [5.0 / np.sqrt(8)]


@pytest.mark.needs("holds_gradients")
@pytest.mark.parametrize(
    ("clip", "want"),
    [
        (lambda p: gradclip.clip_grad_norm_([p], 1.0), DENSE / 5),
        (lambda p: gradclip.clip_grad_value_([p], 1.0), DENSE.clip(-1, 1)),
        (lambda p: gradclip.clip_([p], tensorflow.clip_by_norm(1.0)), DENSE / 5),
        (lambda p: gradclip.clip_([p], tensorflow.clip_by_norm(1.0, axes=[1])), DENSE / [[3], [1], [4], [1]]),
        (lambda p: gradclip.clip_([p], tensorflow.clip_by_norm(1.0, axes=[0])), DENSE / 5),
    ],
    ids=["norm", "value", "by norm", "by row", "by column"],
)
def test_in_place(backend: Framework, clip: Callable[[Any], Any], want: np.ndarray) -> None:
    parameter = backend.parameter(backend.sparse(ROWS, VALUES, HEIGHT))
    clip(parameter)
    after = backend.gradient(parameter)
    assert backend.is_sparse(after)
    assert ulps(backend.densify(after), want, "float32") <= 4


BOUNDS_ABOVE_0 = [(0.5, 1.0), ([0.5, -1.0], 1.0)]


@pytest.mark.parametrize("bounds", BOUNDS_ABOVE_0)
def test_bounds_must_let_zero_be(backend: Framework, bounds: Any) -> None:
    lower, upper = (backend.make(bound) if isinstance(bound, list) else bound for bound in bounds)
    rule = replace(tensorflow.clip_by_value(lower, upper), name="own", stored_only=False)
    with pytest.raises(ValueError, match="Bounds that exclude 0 would make a sparse gradient dense"):
        gradclip.clip([backend.sparse(ROWS, VALUES, HEIGHT)], rule)
    if isinstance(lower, float):
        with pytest.raises(ValueError, match="Bounds that exclude 0 would make a sparse gradient dense"):
            gradclip.clip([backend.sparse(ROWS, VALUES, HEIGHT)], paddle.clip_grad_by_value(upper, lower))


@pytest.mark.parametrize("bounds", [*BOUNDS_ABOVE_0, (-2.0, -1.0)])
def test_tensorflow_clips_the_stored_rows(backend: Framework, bounds: Any) -> None:
    """As tf.clip_by_value clips the values of IndexedSlices."""
    lower, upper = (backend.make(bound) if isinstance(bound, list) else bound for bound in bounds)
    clipped = gradclip.clip([backend.sparse(ROWS, VALUES, HEIGHT)], tensorflow.clip_by_value(lower, upper)).grads[0]
    assert backend.is_sparse(clipped)
    want = np.zeros_like(DENSE)
    want[[0, 2]] = DENSE[[0, 2]].clip(*bounds)
    assert np.array_equal(backend.densify(clipped), want)


def test_bounds_a_column(backend: Framework) -> None:
    columns = tensorflow.clip_by_value(backend.make([-1.0, -2.0]), backend.make([1.0, 0.0]))
    clipped = gradclip.clip([backend.sparse(ROWS, VALUES, HEIGHT)], columns).grads[0]
    assert np.array_equal(backend.densify(clipped), DENSE.clip([-1.0, -2.0], [1.0, 0.0]))


def test_bounds_a_stored_row(backend: Framework) -> None:
    """As tf.clip_by_value: a row that is stored twice has two bounds, so it is not merged."""
    gradient, bounds = backend.sparse([2, 0, 2], VALUES, HEIGHT), backend.make([[1.0], [0.5], [-1.0]])
    if backend.name == "paddle":
        with pytest.raises(ValueError, match="The limit does not fit the gradient"):  # the order of its rows is unknown
            gradclip.clip([gradient], tensorflow.clip_by_value(-3.0, bounds))
        return
    clipped = gradclip.clip([gradient], tensorflow.clip_by_value(-3.0, bounds)).grads[0]
    assert np.array_equal(backend.densify(clipped), [[0.5, 0.5], [0.0, 0.0], [0.0, -1.0], [0.0, 0.0]])
    for wrong in ([[1.0, 1.0]] * HEIGHT, [[1.0], [1.0]], [[[1.0]]]):
        with pytest.raises(ValueError, match="The limit does not fit the gradient"):
            gradclip.clip([gradient], tensorflow.clip_by_value(-3.0, backend.make(wrong)))


def test_large_height_stays_sparse(backend: Framework) -> None:
    """A dense tensor of this height would not fit into memory."""
    gradient = backend.sparse(ROWS, VALUES, 2**40)
    result = gradclip.clip([gradient], optax.clip_by_global_norm(1.0))
    assert result.norm == 5.0
    assert backend.is_sparse(result.grads[0])


def test_what_needs_rows_that_are_left_out(backend: Framework) -> None:
    gradient = backend.sparse(ROWS, VALUES, HEIGHT)
    with pytest.raises(ValueError, match="A sparse gradient has no examples along its first axis"):
        gradclip.clip([gradient], optax.per_example_global_norm_clip(1.0))
    parameter = backend.make(np.ones((HEIGHT, 2)))
    with pytest.raises(ValueError, match="A sparse gradient has no norm for each row of its parameter"):
        gradclip.clip([gradient], optax.adaptive_grad_clip(1.0, axis=1), params=[parameter])
    clipped = gradclip.clip([gradient], optax.adaptive_grad_clip(1.0), params=[parameter]).grads[0]
    assert backend.is_sparse(clipped)
    assert ulps(backend.densify(clipped), DENSE * [[2 / 5, 1.0]], "float32") <= 4


def test_zeros_that_are_not_stored_count_for_a_negative_order(backend: Framework) -> None:
    rule = torch.clip_grad_norm(1.0, -1.0)
    assert float(gradclip.norm([backend.sparse([0], [[3.0, 4.0]], 2)], rule)) == 0.0
    stored = gradclip.norm([backend.sparse([0, 1], [[3.0, 4.0], [2.0, 2.0]], 2)], rule)
    assert float(stored) == pytest.approx(1 / (1 / 3 + 1 / 4 + 1 / 2 + 1 / 2), rel=1e-6)
