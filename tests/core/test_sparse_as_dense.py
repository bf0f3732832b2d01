"""A sparse gradient is its dense equivalent, whatever rows it stores: with every rule and order, eager and traced."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import norm, ratio, total, ulps

import gradclip
from gradclip import Group, Rule
from gradclip.dialects import optax, tensorflow, torch

pytestmark = pytest.mark.needs("has_sparse")

HEIGHT = 3
#: what a gradient of three rows and two columns stores: rows and values
STORED: dict[str, tuple[list[int], Any]] = {
    "nothing": ([], np.zeros((0, 2))),
    "one row": ([2], [[3.0, -4.0]]),
    "zeros": ([1], [[0.0, 0.0]]),
    "every row": ([2, 0, 1], [[3.0, -4.0], [0.5, 2.0], [-1.0, 0.25]]),
    "every row and a zero": ([2, 0, 1], [[3.0, -4.0], [0.5, 0.0], [-1.0, 0.25]]),
    "three times a row": ([1, 1, 1], [[3.0, 1.0], [2.0, -1.0], [-1.0, -2.0]]),
    "as many rows as there are": ([0, 2, 0], [[3.0, 1.0], [2.0, -1.0], [-1.0, -2.0]]),
    "every row in parts": ([0, 1, 2, 1], [[3.0, 1.0], [2.0, -1.0], [-1.0, -2.0], [1.0, 0.5]]),
    "rows that cancel": ([0, 0], [[3.0, 1.0], [-3.0, -1.0]]),
    "infinity": ([1], [[math.inf, math.inf]]),
    "NaN": ([1], [[math.nan, 1.0]]),
}
BESIDE = np.array([0.75, -4.0])
ORDERS = (math.inf, -math.inf, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -1.0, -2.5)
LIMIT = 0.375

Wanted = Callable[[list[np.ndarray]], tuple[list[np.ndarray], Any]]  #: the dense gradients -> the clipped ones, and the norms
Rules = list[tuple[Rule, Wanted]]


def of_all(order: float) -> tuple[Rule, Wanted]:
    def wanted(grads: list[np.ndarray]) -> tuple[list[np.ndarray], Any]:
        n = total(list(grads), order)
        return [times(g, ratio(n, LIMIT, 1e-6)) for g in grads], n

    return torch.clip_grad_norm(LIMIT, order), wanted


def of_each(order: float, axes: list[int] | None) -> tuple[Rule, Wanted]:
    def wanted(grads: list[np.ndarray]) -> tuple[list[np.ndarray], Any]:
        norms = [norm(g, order, None if axes is None else tuple(axes)) for g in grads[:1]]
        return [times(g, ratio(n, LIMIT)) for g, n in zip(grads, norms, strict=False)], norms if axes is None else None

    return replace(tensorflow.clip_by_norm(LIMIT, axes=axes), name="own", order=order), wanted


def times(g: np.ndarray, c: Any) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.where(c == 1, g, g * c)


RULES: Rules = [of_all(order) for order in ORDERS]
RULES += [of_each(order, None) for order in ORDERS]
RULES += [of_each(order, axes) for axes in ([0], [1]) for order in (math.inf, -math.inf, -1.0, 2.0)] + [of_each(2.0, [])]
RULES += [(tensorflow.clip_by_value(-1.0, 0.25), lambda grads: ([np.clip(g, -1.0, 0.25) for g in grads], None))]


def clipped(grads: list[Any], rules: Rules) -> list[Any]:
    """The gradients and norms of all rules, as one list; a rule with norms along axes fits the matrix only."""
    found = []
    for rule, _ in rules:
        result = gradclip.clip(grads if rule.axes is None else grads[:1], rule)
        norms = result.norm if isinstance(result.norm, list) else [result.norm]
        found += [*result.grads, *(norms[:1] if rule.axes is None and not rule.is_by_value else [])]
    return found


def check(backend: Framework, found: list[Any], dense: list[np.ndarray], rows: list[int], rules: Rules) -> None:
    each, wrong = iter(found), []
    for rule, wanted in rules:
        given = dense if rule.axes is None else dense[:1]
        (first, *_), norms = wanted(given)
        sparse, *_ = [next(each) for _ in given]
        assert backend.is_sparse(sparse), rule
        errors = [ulps(backend.densify(sparse)[rows], first[rows], "float32")]  # NaN times a zero that is not stored is 0
        if norms is not None:
            n = next(each)
            errors.append(ulps(n if isinstance(n, float) else backend.read(n), np.ravel(norms)[0], "float32"))
        if max(errors) > 4:
            wrong.append((str(rule), rule.scope.value, rule.axes, rule.order, errors))
    assert not wrong
    assert not list(each)


@pytest.mark.parametrize(("rows", "values"), STORED.values(), ids=STORED)
def test_eager(backend: Framework, rows: list[int], values: Any) -> None:
    gradient, beside = backend.sparse(rows, values, HEIGHT), backend.make(BESIDE)
    dense = backend.densify(gradient)
    check(backend, clipped([gradient, beside], RULES), [dense, BESIDE], rows, RULES)
    check(backend, clipped([gradient], RULES), [dense], rows, RULES)


@pytest.mark.parametrize("name", ["nothing", "one row", "every row in parts"])
def test_other_values(backend: Framework, name: str) -> None:
    """Groups, limits that follow a parameter, a monitor, and policies for norms that are not finite."""
    rows, values = STORED[name]
    gradient, beside = backend.sparse(rows, values, HEIGHT), backend.make(BESIDE)
    dense = backend.densify(gradient)
    largest = total([dense, BESIDE], math.inf)
    own, others = torch.clip_grad_norm(LIMIT, math.inf), torch.clip_grad_norm(1.0, 1.0)
    result = gradclip.clip({"table": gradient, "w": beside}, [Group(own, "table"), Group(others)])
    assert [float(n) for n in result.norm] == [np.abs(dense).max(), total([BESIDE], 1.0)]

    adaptive = optax.adaptive_grad_clip(0.01)
    clipped = gradclip.clip([gradient], adaptive, params=[backend.make(np.ones((HEIGHT, 2)))]).grads[0]
    want = times(dense, ratio(norm(dense, 2.0, (0,)), 0.01 * math.sqrt(HEIGHT), min_divisor=1e-6))
    assert ulps(backend.densify(clipped), want, "float32") <= 4

    monitor = gradclip.Monitor()
    for rule in (
        torch.clip_grad_norm(LIMIT, math.inf, error_if_nonfinite=True),
        replace(torch.clip_grad_norm(LIMIT, math.inf), if_nonfinite="zero"),
        replace(torch.clip_grad_norm(LIMIT, math.inf), if_nonfinite="skip"),
        replace(torch.clip_grad_norm(LIMIT, math.inf), skip_above=1e6),
    ):
        result = gradclip.clip([gradient, beside], rule)
        assert float(result.norm) == largest
        assert ulps(backend.read(result.grads[1]), times(BESIDE, ratio(largest, LIMIT, 1e-6)), "float32") <= 4
        monitor.update(result)
    rule = replace(tensorflow.clip_by_norm(LIMIT, axes=[1]), name="own", error_if_nonfinite=True)
    clipped = gradclip.clip([gradient], rule).grads[0]
    assert ulps(backend.densify(clipped), times(dense, ratio(norm(dense, 2.0, (1,)), LIMIT)), "float32") <= 4


@pytest.mark.parametrize("order", [math.inf, -math.inf, -1.0])
def test_an_empty_gradient_stays_empty(backend: Framework, order: float) -> None:
    """A table without rows has no elements, stored or not."""
    with pytest.raises(ValueError, match="The norm of an empty gradient is not defined for an infinite or negative order"):
        gradclip.norm([backend.sparse([], np.zeros((0, 2)), 0)], torch.clip_grad_norm(1.0, order))
    assert gradclip.norm([backend.sparse([], np.zeros((0, 2)), 0)], torch.clip_grad_norm(1.0)) == 0.0
