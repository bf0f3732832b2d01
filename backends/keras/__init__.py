"""Keras 3 on TensorFlow, PyTorch or JAX: any of its optimizers, clipping by any rule inside ``model.fit``.

This module has no :class:`gradclip.Backend`. Keras has no tensors of its own: its optimizers clip tensors of the framework
that it runs on, with that framework's backend. ``docs/keras.md`` explains the choice of this place.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any

import keras

from gradclip.backends.keras.carried import FollowingLimit, Record
from gradclip.backends.keras.monitored import Counters, MonitorLog
from gradclip.backends.keras.saving import loaded_rule, name_of, saved_rule
from gradclip.clip import clip
from gradclip.errors import ArgumentError, ArgumentTypeError, GradclipError, GradclipWarning
from gradclip.floors import check_version
from gradclip.limits import Adaptive
from gradclip.mistakes import check_rule
from gradclip.result import ClipResult
from gradclip.rule import Rule, Scope

__all__ = ["MonitorLog", "clipped"]

check_version("keras", keras.__version__)

_OWN_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
_HOOKS = ("_backend_apply_gradients", "_clip_gradients")  # Keras calls these methods, and Clipping overrides them


def clipped(optimizer: Any, rule: Rule, *, record: bool = False, monitor: Any = None) -> Any:
    """Make a Keras optimizer clip by a rule, instead of its own ``clipnorm=``.

    It clips after the gradients are unscaled and accumulated, and before weight decay and the update. Pass the result to
    ``model.compile``. A saved model contains the optimizer and its rule; a program that imports this module can load it.

    Args:
        optimizer: an optimizer, its name (``"adam"``) or its configuration. An optimizer is changed in place: its class
            becomes a subclass of its own class. Compile the model after that, not before.
        rule: of any dialect, except one that sums over examples. Its limit is a number, or a :class:`gradclip.Adaptive`: the
            optimizer keeps its state in variables, which are saved, and the ``Adaptive`` itself does not change.
            ``optimizer.clip_limit`` is the limit of the next step.
        record: whether the optimizer keeps the norm and the coefficient of its last step, in two variables that are saved with
            it. Then ``optimizer.last`` is a :class:`gradclip.ClipResult` with them; for a rule with a norm for each gradient
            they are vectors in the order of the variables. Otherwise ``last`` is None.
        monitor: a :class:`gradclip.Monitor`. The optimizer counts in its own variables, on its device, and the monitor
            reads them for a report; :class:`MonitorLog` logs it at the end of each epoch. It is not saved with the model: save
            ``monitor.state_dict()``.

    Returns:
        The optimizer.

    Raises:
        ValueError: if the optimizer clips already; for a rule whose result has another shape than the gradient; for an
            optimizer that only passes gradients to others (``LossScaleOptimizer``): clip in the inner one; and with
            ``record`` for a rule without a norm, or with several for one gradient.
        TypeError: if ``rule`` is not a rule, and for a limit that is a tensor; when the model is saved, for a schedule and for
            a limit that is not from :mod:`gradclip.limits`.

    Example:
        >>> import keras, gradclip.backends.keras
        >>> from gradclip.dialects import torch
        >>> adam = gradclip.backends.keras.clipped(keras.optimizers.Adam(1e-3), torch.clip_grad_norm(max_norm=1.0))
        >>> isinstance(adam, keras.optimizers.Adam), adam.clip_rule.name
        (True, 'torch.clip_grad_norm')
    """
    if isinstance(optimizer, Rule):
        raise ArgumentTypeError("The optimizer comes first.", f"optimizer={optimizer}", "clipped(optimizer, rule).")
    made = keras.optimizers.get(optimizer)
    if made is None:
        raise ArgumentTypeError("An optimizer is needed.", "optimizer=None", 'name one: "adam".')
    _check_rule(rule, record)
    _check_optimizer(made)
    kind: type = type(made)
    made.__class__ = _subclass(kind)
    made.clip_rule = rule
    if record:
        made._record = Record()
    if isinstance(rule.limit, Adaptive):
        made._limit = FollowingLimit(rule.limit)
    if made.built:
        made._build_carried()
    if monitor is not None:
        if made.built:
            what = "A monitor counts in variables that the optimizer makes when it is built."
            raise ArgumentError(what, "an optimizer that has been built", "make another optimizer.")
        made.__dict__["_monitor"] = monitor  # not by setattr: it is not part of the optimizer's state
    return made


class Clipping(keras.optimizers.Optimizer):
    """The clipping part of an optimizer; its class inherits from this class and from its former class."""

    clip_rule: Rule
    unclipped: type  #: the class that the optimizer had
    _clipped_variables: list[Any] | None = None  # the variables of the gradients being clipped
    _record: Record | None = None
    _limit: FollowingLimit | None = None
    _monitor: Any = None
    _counters: Counters | None = None

    @property
    def last(self) -> ClipResult | None:
        """The norm and the coefficient of the last step, if recorded; None before the optimizer is built."""
        if self._record is None or not self._record.variables:
            return None
        # copies: on TensorFlow a variable counts as a tensor, and the next step would change it
        return ClipResult(None, *(keras.ops.copy(keras.ops.convert_to_tensor(x)) for x in self._record.variables))

    @property
    def clip_limit(self) -> Any:
        """The limit of the next step: a number, or a tensor if it follows the run."""
        if self._limit is None:
            return self.clip_rule.limit
        state = self._limit.state() if self._limit.variables else self._limit.adaptive.state
        return self._limit.adaptive.rule_of.limit(state)

    def build(self, variables: Any) -> None:
        super().build(variables)
        self._build_carried()
        if self._monitor is not None and self._counters is None:
            self.__dict__["_counters"] = Counters(self._monitor, self)

    def _build_carried(self) -> None:
        for part in (self._record, self._limit):
            if part is not None:
                part.build(self, len(self._trainable_variables))

    def _clipped(self, grads: list[Any], params: Any) -> list[Any]:
        rule = self.clip_rule
        if self._limit is None:
            result = clip(grads, rule, params=params)
        else:
            carried = self._limit.adaptive.carrying(self._limit.state())
            result = clip(grads, dataclasses.replace(rule, limit=carried), params=params)
            self._limit.write(carried)
        if self._record is not None:
            variables = () if rule.is_total else self._clipped_variables or self._trainable_variables  # one norm: no places
            self._record.write(result, list(map(self._get_variable_index, variables)))
        if self._counters is not None:
            self._counters.write(result)
        return list(result.grads)

    def save_own_variables(self, store: Any) -> None:
        """Save the variables, except the monitor's."""
        for i, variable in enumerate(self._saved()):
            store[str(i)] = variable.numpy() if hasattr(variable, "numpy") else keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        """Load the variables, with or without a monitor."""
        if self._counters is None:
            super().load_own_variables(store)
            return
        whole = self._variables
        self.__dict__["_variables"] = self._saved()
        try:
            super().load_own_variables(store)
        finally:
            self.__dict__["_variables"] = whole

    def _saved(self) -> list[Any]:
        own = {id(variable) for variable in self._counters.variables.values()} if self._counters else set()
        return [variable for variable in self.variables if id(variable) not in own]

    def _filter_empty_gradients(self, grads: list[Any], variables: list[Any]) -> Any:
        # Keras 3.4 clips the remaining gradients here, before it calls the method below
        left = super()._filter_empty_gradients(grads, variables)
        self.__dict__["_clipped_variables"] = list(left[1])
        return left

    def _backend_apply_gradients(self, grads: list[Any], trainable_variables: list[Any]) -> None:
        # for _clip_gradients, which does not receive them; not by setattr, which would make them the optimizer's variables
        self.__dict__["_clipped_variables"] = trainable_variables
        super()._backend_apply_gradients(grads, trainable_variables)

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        _check_alone(self)  # clipnorm can be assigned to at any time
        params = None
        if self.clip_rule.relative_to is not None:
            variables: list[Any] = self._clipped_variables or self._trainable_variables
            params = [keras.ops.convert_to_tensor(variable) for variable in variables]
        if not hasattr(super(), "_all_reduce_sum_gradients") or not _has_strategy():
            return self._clipped(list(grads), params)
        # under tf.distribute Keras clips each replica's gradients and adds up the results, which does not clip their sum
        grads = [g for g, _ in super()._all_reduce_sum_gradients([(g, None) for g in grads])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GradclipWarning)  # they are summed now, even if the test for it cannot tell
            return self._clipped(grads, params)

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars  # with more than one replica they were summed before the clip

    def get_config(self) -> dict[str, Any]:
        """The configuration of the optimizer without the clip, plus the parts that :meth:`from_config` needs."""
        config: dict[str, Any] = super().get_config()
        saved = {"optimizer": name_of(self.unclipped), "rule": saved_rule(self.clip_rule), "record": self._record is not None}
        return {**config, "clipped": saved}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
        """The same clipped optimizer again, whichever class of clipped optimizers this is called on."""
        config = dict(config)
        clips = config.pop("clipped")
        saved = {**clips["optimizer"], "config": config}
        optimizer = keras.saving.deserialize_keras_object(saved, custom_objects=custom_objects)
        return clipped(optimizer, loaded_rule(clips["rule"]), record=clips.get("record", False))


def _has_strategy() -> bool:
    """Whether Keras, on TensorFlow, trains under a strategy; without one there is one replica and nothing to sum."""
    import tensorflow as tf

    return bool(tf.distribute.has_strategy())


@functools.cache
def _subclass(base: type) -> type:
    namespace = {"__module__": __name__, "__doc__": base.__doc__, "unclipped": base}
    made = type(f"Clipped{base.__name__}", (Clipping, base), namespace)
    # one name for all: a program that loads a model knows Clipping, and not yet its subclasses
    return _registered(made)


def _registered(cls: type) -> type:
    register = keras.saving.register_keras_serializable(package="gradclip", name="Clipped")
    result: type = register(cls)
    return result


_registered(Clipping)


def _check_rule(rule: Any, record: bool) -> None:
    check_rule(rule, keeps_shape=True)
    if record and rule.scope not in (Scope.GLOBAL, Scope.TENSOR):
        what = "record=True is for a rule with one norm, or one for each gradient."
        raise ArgumentError(what, f"rule={rule}", "leave record=True out.")
    for name in ("limit", "lower", "upper"):
        value = getattr(rule, name)
        if name == "limit" and isinstance(value, Adaptive):
            continue
        if not isinstance(value, (int, float)):
            name = rule.limit_name if name == "limit" else name
            raise ArgumentTypeError("The limit must be a number, to be saved with the model.", f"{name}={value!r}")


def _check_optimizer(optimizer: Any) -> None:
    outer = tuple(filter(None, (getattr(keras.optimizers, name, None) for name in ("LossScaleOptimizer", "MultiOptimizer"))))
    if isinstance(optimizer, outer):
        what = f"A {type(optimizer).__name__} passes its gradients to other optimizers."
        raise ArgumentError(what, f"optimizer={type(optimizer).__name__}", "clip by the optimizers inside of it.")
    if isinstance(optimizer, Clipping):
        raise ArgumentError("This optimizer clips by a rule already.", f"rule={optimizer.clip_rule}")
    _check_alone(optimizer)
    missing = [hook for hook in _HOOKS if not hasattr(optimizer, hook)]
    if missing:
        what = "gradclip does not know how this version of Keras clips."
        raise GradclipError(
            what, f"keras {keras.__version__} without {', '.join(missing)}", "use a version that the tests ran on."
        )


def _check_alone(optimizer: Any) -> None:
    """Refuse two clips at once, as Keras does."""
    own = {name: getattr(optimizer, name) for name in _OWN_CLIPS}
    if any(value is not None for value in own.values()):
        what = "Only one of `clipnorm`, `clipvalue`, `global_clipnorm` and a rule can be set."
        raise ArgumentError(what, ", ".join(f"{name}={value}" for name, value in own.items()))
