"""Slices in a graph, where only the values tell how many rows are stored: each is its dense equivalent."""

from __future__ import annotations

import math
from typing import Any

import core.test_sparse_as_dense as eager
import numpy as np
import pytest
import tensorflow as tf
from frameworks.tensorflow import framework

import gradclip
from gradclip.dialects import torch

#: XLA cannot broadcast along an axis whose length it does not know
SIMPLE = [(rule, wanted) for rule, wanted in eager.RULES if rule.axes is None]


@pytest.mark.parametrize("how", ["function", "unknown_shape"])
def test_as_dense(how: str) -> None:
    rules = eager.RULES if how == "unknown_shape" else SIMPLE
    traced = framework.jit(how, lambda grads: eager.clipped(grads, rules))
    for name in eager.STORED if how == "unknown_shape" else ("nothing", "every row in parts"):
        check(traced, *eager.STORED[name], rules)


@pytest.mark.parametrize("order", [math.inf, -1.0])
def test_as_dense_in_xla(order: float) -> None:
    """One rule in a program: XLA crashes on some programs with several lengths that it does not know."""
    rules = [eager.of_all(order)]
    traced = framework.jit("xla", lambda grads: eager.clipped(grads, rules))
    for name in ("nothing", "every row in parts"):
        check(traced, *eager.STORED[name], rules)


def check(traced: Any, rows: list[int], values: Any, rules: eager.Rules) -> None:
    gradient = framework.sparse(rows, values, eager.HEIGHT)
    found = traced([gradient, framework.make(eager.BESIDE)])
    eager.check(framework, found, [framework.densify(gradient), eager.BESIDE], rows, rules)


@pytest.mark.parametrize("compiled", [False, True], ids=["function", "xla"])
def test_a_step_without_a_lookup(compiled: bool) -> None:
    table, weights = tf.Variable(tf.ones([4, 2])), tf.Variable([1.0, 1.0])
    rule = torch.clip_grad_norm(1.0, math.inf)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)], jit_compile=compiled)
    def step(ids: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, ids)) + tf.reduce_sum(weights * [3.0, 4.0])
        result = gradclip.clip(tape.gradient(loss, [table, weights]), rule)
        return result.norm, result.grads[1]

    for ids in ([1], []):
        n, clipped = step(tf.constant(ids, tf.int32))
        assert n == 4.0
        assert np.allclose(clipped, [0.75, 1.0], rtol=1e-6)


def test_a_dense_gradient_that_is_empty_in_this_step() -> None:
    """Its largest magnitude is no reason to change the others; eager it is an error, which a graph cannot raise."""
    norm = framework.jit("unknown_shape", lambda grads: [gradclip.norm(grads, torch.clip_grad_norm(1.0, math.inf))])
    (n,) = norm([framework.make(np.zeros((0, 2))), framework.make(eager.BESIDE)])
    assert n == 4.0
