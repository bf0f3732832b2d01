"""The topologies of ``tests/support/topologies.py`` that replicas can hold: addends and copies, dense or sparse."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
import topologies
from oracle import ulps
from topologies import Case, Gradient

import gradclip

SAMPLE = 6  #: each is traced, which takes a second


def chosen(replicas: int) -> list[Case]:
    """Return cases in which every two features of the replicas' gradients and of the rules meet."""
    every = [
        replace(case, missing="", rule=rule)
        for case in topologies.cases(("P", "R"), 8, [(replicas,)])
        for rule in topologies.RULES
        if case.stage is None and all(grad.how in ("typed", "plain", "sparse", "twice") for grad in case.grads)
    ]
    return topologies.in_pairs((case for case in every if not (case.rule == "axes" and not case.grads[-1].shape)), SAMPLE)


def gradient(case: Case, grad: Gradient, replica: Any) -> Any:
    """Return what a replica has; a sparse gradient names its rows twice, with half of the values."""
    every = [topologies.mine(case, grad, (i,)) for i in range(case.mesh[0])]
    here = tf.gather(tf.constant(np.stack(every), "float64"), replica)
    if grad.how == "sparse":
        rows = list(range(grad.shape[0])) * 2
        return tf.IndexedSlices(tf.cast(tf.concat([here / 2] * 2, 0), grad.dtype), tf.constant(rows), grad.shape)
    return tf.cast(here, grad.dtype)


def check_one(case: Case, strategy: tf.distribute.Strategy) -> None:
    def replica() -> Any:
        context = tf.distribute.get_replica_context()
        grads = {}
        for grad in case.grads:
            x = gradient(case, grad, context.replica_id_in_sync_group)
            grads[grad.name] = context.all_reduce(tf.distribute.ReduceOp.SUM, x) if grad.summed() else x
        more = {grad.name: tf.constant(topologies.parameter(grad, 0), grad.dtype) for grad in case.grads}
        result = gradclip.clip(grads, topologies.rule(case), **({"params": more} if case.rule == "AGC" else {}))
        return {name: tf.convert_to_tensor(g) for name, g in result.grads.items()}, result.norm

    found, out = tf.function(lambda: strategy.run(replica))(), topologies.outcome(case)
    clipped, norms = found
    for grad in case.grads:
        for got in strategy.experimental_local_results(clipped[grad.name]):
            assert ulps(tf.cast(got, "float64").numpy(), out.clipped[0, grad.name], grad.dtype) <= 4, grad.name
    if case.rule not in ("axes", "AGC", "by value", "by tensor"):
        for each, want in zip(norms if case.rule == "groups" else [norms], out.norms, strict=True):
            for got in strategy.experimental_local_results(each):
                assert ulps(float(got), float(want), "float32") <= 4


def check(strategy: tf.distribute.Strategy) -> None:
    """Check the topologies on the strategy's replicas."""
    cases = chosen(strategy.num_replicas_in_sync)
    assert cases
    for case in cases:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default")  # TensorFlow's own
                warnings.simplefilter("error", gradclip.core.errors.GradclipWarning)
                warnings.filterwarnings("ignore", "The gradients of one replica")  # copies that nobody needs to sum
                check_one(case, strategy)
        except Exception as error:
            raise AssertionError(str(case)) from error
