"""Gradients on the replicas of a ``tf.distribute.Strategy``: whether they are summed already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gradclip.core.errors import message
from gradclip.core.parts import Distributed

__all__ = ["TensorFlowDistributed"]

#: the operations between a sum and its gradient; the last ones pack gradients, and gather sparse ones
_SIMPLE = {"Identity", "IdentityN", "Mul", "RealDiv", "Cast", "Reshape", "AddN", "AddV2", "ConcatV2", "SplitV", "If", "Equal"}
_SIMPLE |= {"Max", "Min", "ExpandDims", "Squeeze", "StridedSlice", "Transpose"}
_MANY = 40  # the most operations to search


class TensorFlowDistributed(Distributed):
    def doubt(self, tensors: Sequence[Any]) -> str | None:
        """A warning if a graph shows that gradients of one replica are clipped before the sum over all replicas.

        An eager tensor does not tell whether it is summed: it gives no warning.
        """
        if tf.executing_eagerly() or not tf.distribute.has_strategy():
            return None
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync < 2 or all(map(_may_be_summed, tensors)):
            return None
        what = "The gradients of one replica are clipped before they are summed over all: that does not clip their sum."
        received = f"gradients that no visible operation has summed; replicas: {context.num_replicas_in_sync}"
        hint = "sum first, with tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, grads) or "
        hint += "merge_call, or return them from strategy.run; then clip. If they are summed, or should be clipped separately: "
        hint += 'warnings.filterwarnings("ignore", "The gradients of one replica").'
        return message(what, received, hint)


def _may_be_summed(x: Any) -> bool:
    """Whether a tensor comes from a sum over replicas, or from outside of its graph: then its history is unknown.

    ``all_reduce`` ends in an identity with a custom derivative; sums of sparse gradients have inputs on several devices.
    """
    values = x.values if isinstance(x, tf.IndexedSlices) else x
    if not hasattr(values, "op"):  # an eager tensor, or a variable
        return True
    queue, seen = [values.op], 0
    while queue and seen < _MANY:
        op, seen = queue.pop(0), seen + 1
        if op.type == "IdentityN" and "_gradient_op_type" in op.node_def.attr:
            return True
        if op.type.startswith(("Collective", "Nccl")) or len({of.op.device for of in op.inputs if of.op.device}) > 1:
            return True
        queue += [of.op for of in op.inputs] if op.type in _SIMPLE else []
    return _is_argument(values.op)


def _is_argument(op: Any) -> bool:
    """Whether this is a function's argument, unchanged."""
    while op.type == "Identity":
        op = op.inputs[0].op
    return bool(op.type == "Placeholder")
