"""The topologies of ``tests/topologies.py`` that replicas can hold: addends and copies, dense or sparse."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
import topologies
from oracle import ulps
from topologies import Case, Held

import gradclip

SAMPLE = 6  #: each is traced, which takes a second


def chosen(replicas: int) -> list[Case]:
    """Return cases in which every two features of the replicas' gradients and of the rules meet."""
    every = [
        replace(case, missing="", rule=rule)
        for case in topologies.cases(("P", "R"), 8, [(replicas,)])
        for rule in topologies.RULES
        if case.stage is None and all(held.how in ("typed", "plain", "sparse", "twice") for held in case.held)
    ]
    return topologies.in_pairs((case for case in every if not (case.rule == "axes" and not case.held[-1].shape)), SAMPLE)


def gradient(case: Case, held: Held, replica: Any) -> Any:
    """Return what a replica has; a sparse gradient names its rows twice, with half of the values."""
    every = [topologies.mine(case, held, (i,)) for i in range(case.mesh[0])]
    here = tf.gather(tf.constant(np.stack(every), "float64"), replica)
    if held.how == "sparse":
        rows = list(range(held.shape[0])) * 2
        return tf.IndexedSlices(tf.cast(tf.concat([here / 2] * 2, 0), held.dtype), tf.constant(rows), held.shape)
    return tf.cast(here, held.dtype)


def check_one(case: Case, strategy: tf.distribute.Strategy) -> None:
    def replica() -> Any:
        context = tf.distribute.get_replica_context()
        grads = {}
        for held in case.held:
            x = gradient(case, held, context.replica_id_in_sync_group)
            grads[held.name] = context.all_reduce(tf.distribute.ReduceOp.SUM, x) if held.summed() else x
        more = {held.name: tf.constant(topologies.parameter(held, 0), held.dtype) for held in case.held}
        result = gradclip.clip(grads, topologies.rule(case), **({"params": more} if case.rule == "AGC" else {}))
        return {name: tf.convert_to_tensor(g) for name, g in result.grads.items()}, result.norm

    found, out = tf.function(lambda: strategy.run(replica))(), topologies.outcome(case)
    clipped, norms = found
    for held in case.held:
        for got in strategy.experimental_local_results(clipped[held.name]):
            assert ulps(tf.cast(got, "float64").numpy(), out.clipped[0, held.name], held.dtype) <= 4, held.name
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
                warnings.simplefilter("error", gradclip.errors.GradclipWarning)
                warnings.filterwarnings("ignore", "The gradients of one replica")  # copies that nobody needs to sum
                check_one(case, strategy)
        except Exception as error:
            raise AssertionError(str(case)) from error
