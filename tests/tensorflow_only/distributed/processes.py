"""Runs in each of two processes of a ``MultiWorkerMirroredStrategy``: a monitor and a following limit see the summed gradient.

Then it checks the topologies of ``tensors``.
``python -m forked 2 tensorflow_only.distributed.processes`` prints their values as JSON.
"""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_only.distributed import tensors

import gradclip
from gradclip import limits
from gradclip.dialects import torch

SIZES = [1.05, 2.05, 3.05, 50.0, math.nan, 2.05, 1.55, 4.05] * 2  # none of them on the edge of a bin
SHARES = [0.25, 0.75]  # each process's share of a gradient


def summed(size: tf.Tensor) -> tf.Tensor:
    """Return a gradient of this size; each replica contributes a share."""
    context = tf.distribute.get_replica_context()
    share = tf.gather(tf.constant(SHARES), context.replica_id_in_sync_group)
    return context.all_reduce(tf.distribute.ReduceOp.SUM, share * size)


def main() -> None:
    warnings.simplefilter("error", gradclip.core.errors.GradclipWarning)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    limit = limits.quantile(0.5, warmup=3)
    monitor, told, adaptive = gradclip.Monitor(), gradclip.Monitor(), gradclip.Adaptive(limit)
    zero = tf.zeros(())
    states: Any = (monitor.init(like=zero), limits.tensors(limit.init(), zero))

    @tf.function
    def step(states: Any, size: tf.Tensor) -> Any:
        def replica(states: Any) -> Any:
            seen, known = states
            most = limit.limit(known)
            result = gradclip.clip([summed(size)[None]], torch.clip_grad_norm(most))
            return (gradclip.observed(seen, result), limit.observe(known, result.norm)), most

        return strategy.run(replica, args=(states,))

    used, followed = [], []
    for size in map(tf.constant, SIZES):
        states, most = step(states, size)
        used.append(float(most))
        rule = torch.clip_grad_norm(adaptive)
        told.update(strategy.run(lambda size, rule=rule: gradclip.clip([summed(size)[None]], rule), args=(size,)))
        followed.append(float(adaptive.last))
    np.testing.assert_allclose(used, followed, rtol=1e-5)
    tensors.check(strategy)
    monitor.merge(states[0])
    print(json.dumps({"traced": monitor.report(), "eager": told.report(), "limits": used}))
