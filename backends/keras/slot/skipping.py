"""A step of a Keras optimizer that is skipped: which parts of it are left out, and which are taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from gradclip.backends.keras import versions
from gradclip.backends.keras.slot.check import check_replicas, has_strategy
from gradclip.backends.keras.slot.state import Record, State, read
from gradclip.core.groups import Rules
from gradclip.core.registry import find
from gradclip.steps.refusals import too_many

__all__ = ["Skipping"]


class Skipping(keras.optimizers.Optimizer):
    """The part of a clipped optimizer whose rule skips steps; any other clipped optimizer lacks it."""

    clip_rule: Rules
    _record: Record | None
    _state: State
    _patience: float
    _before: Any = None  # while a step runs: the number of skipped steps before it
    _known: bool | None = None  # on PyTorch: whether this step is skipped

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        variables = None if trainable_variables is None else list(trainable_variables)
        if not self.built and variables:
            with keras.name_scope(self.name, caller=self):
                self.build(variables)
        if not self.built:  # Keras says what is missing
            super().apply(grads, variables)
            return
        check_replicas(self._state.step)
        counts = self._state.tree["skips"]
        self.__dict__.update(_before=read(counts["skipped"]), _known=None)
        try:
            kept = [(v, read(v)) for v in self._selected()]
            super().apply(grads, variables)
            skip = self._is_skipped()
        finally:
            self.__dict__["_before"] = None
        for variable, value in kept:
            variable.assign(keras.ops.where(skip, value, keras.ops.convert_to_tensor(variable)))
        # the step is as if it had not been, with the gradients that were accumulated for it
        steps = self.gradient_accumulation_steps or 1
        count = versions.count_of(self)
        count.assign_sub(keras.ops.cast(skip, count.dtype) * steps)
        self._check_run(skip, counts["in_a_row"])

    def _selected(self) -> list[Any]:
        """The variables whose old values a skipped step takes back; the other ones it does not write at all.

        On JAX that is all but the clip's own: there a traced branch cannot assign.
        """
        if keras.backend.backend() != "jax":
            return [v for v in self._trainable_variables if getattr(v, "constraint", None) is not None]
        own = [versions.count_of(self), *self._state.variables, *(self._record.variables if self._record else ())]
        own += getattr(self, "_accumulated_gradients", [])
        ids = set(map(id, own))
        return [*self._trainable_variables, *(v for v in self._variables if id(v) not in ids)]

    def _is_skipped(self) -> Any:
        """Whether the clip of this step has said so. PyTorch looks at it once."""
        if self._known is not None:
            return self._known
        skip = keras.ops.not_equal(keras.ops.convert_to_tensor(self._state.tree["skips"]["skipped"]), self._before)
        if keras.backend.backend() == "torch":
            self.__dict__["_known"] = skip = bool(skip)
        return skip

    def _unless_skipped(self, call: Callable[[], Any]) -> None:
        """A part of a step, inside a branch of the graph; on PyTorch of Python.

        There ``keras.ops.cond`` has a new name in each step, for which ``torch.compile`` compiles the step again.
        """

        def called() -> None:
            call()

        if self._before is None or keras.backend.backend() == "jax":
            called()
        elif keras.backend.backend() != "torch":
            _unless(self._is_skipped(), called)
        elif not self._is_skipped():
            called()

    def _check_run(self, skip: Any, in_a_row: Any) -> None:
        """Raise after too many skipped steps in a row, in an eager step."""
        skip, backend = keras.ops.convert_to_tensor(skip), find(keras.ops.convert_to_tensor(skip))
        if backend is None or not backend.can_read(skip) or not bool(skip):
            return
        if int(keras.ops.convert_to_numpy(read(in_a_row))) > self._patience:
            norm = None if self._record is None else read(self._record.variables[0])
            raise too_many(self._patience, self.clip_rule, norm)

    def _apply_weight_decay(self, variables: Any) -> None:
        self._unless_skipped(lambda: super(Skipping, self)._apply_weight_decay(variables))

    def _backend_update_step(self, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
        def update() -> None:
            super(Skipping, self)._backend_update_step(grads, trainable_variables, learning_rate)

        self._unless_skipped(update)

    def _update_model_variables_moving_average(self, trainable_variables: Any) -> None:
        self._unless_skipped(lambda: super(Skipping, self)._update_model_variables_moving_average(trainable_variables))

    def _overwrite_model_variables_with_average_value(self, trainable_variables: Any) -> None:
        self._unless_skipped(lambda: super(Skipping, self)._overwrite_model_variables_with_average_value(trainable_variables))


def _unless(skip: Any, call: Callable[[], None]) -> None:
    """Call a function in a branch of the graph, unless a tensor is true.

    Under a strategy of TensorFlow such as MirroredStrategy, also of one replica, an update of variables leaves the replica,
    which it cannot inside a branch. So the branch is outside, and the update in a replica of its own.
    """
    if keras.backend.backend() == "tensorflow" and has_strategy():
        import tensorflow as tf

        def outside(strategy: Any) -> None:
            keras.ops.cond(skip, lambda: None, lambda: strategy.extended.call_for_each_replica(call))

        tf.distribute.get_replica_context().merge_call(outside)
    else:
        keras.ops.cond(skip, lambda: None, call)
