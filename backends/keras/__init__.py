"""Keras 3 on TensorFlow, PyTorch or JAX: any of its optimizers, clipping by any rule inside ``model.fit``.

This module has no :class:`gradclip.Backend`. Keras has no tensors of its own: its optimizers clip tensors of the framework
that it runs on, with that framework's backend. ``docs/keras.md`` explains the choice of this place.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, Literal, TypeVar, overload

import keras

from gradclip.backends.keras.slot.check import check_alone, check_optimizer, check_rules, has_strategy
from gradclip.backends.keras.slot.compiled import trace_again
from gradclip.backends.keras.slot.log import MonitorLog
from gradclip.backends.keras.slot.saving import loaded_rules, name_of, saved_number, saved_rules
from gradclip.backends.keras.slot.skipping import Skipping
from gradclip.backends.keras.slot.state import Record, State, read
from gradclip.core.errors import ArgumentError, ArgumentTypeError, GradclipWarning, shown
from gradclip.core.groups import Rules, check_groups
from gradclip.core.result import ClipResult
from gradclip.core.rule import Rule
from gradclip.core.versions import check_version
from gradclip.limits import Adaptive
from gradclip.steps.monitor import Monitor
from gradclip.steps.refusals import check_patience, not_an_optimizer
from gradclip.steps.step import Step

__all__ = ["MonitorLog", "clipped"]

check_version("keras", keras.__version__)

OptimizerT = TypeVar("OptimizerT", bound=keras.optimizers.Optimizer)


@overload
def clipped(
    optimizer: str | dict[str, Any], rule: Rules, *, record: bool = ..., monitor: Monitor | None = ..., patience: float = ...
) -> Any: ...
@overload
def clipped(  # the result has ``last``
    optimizer: keras.optimizers.Optimizer,
    rule: Rules,
    *,
    record: Literal[True],
    monitor: Monitor | None = ...,
    patience: float = ...,
) -> Any: ...
@overload
def clipped(
    optimizer: OptimizerT, rule: Rules, *, record: bool = ..., monitor: Monitor | None = ..., patience: float = ...
) -> OptimizerT: ...
def clipped(optimizer: Any, rule: Rules, *, record: bool = False, monitor: Any = None, patience: float = 10) -> Any:
    """Make a Keras optimizer clip by a rule, instead of its own ``clipnorm=``.

    It clips after the gradients are unscaled and accumulated, and before weight decay and the update. Pass the result to
    ``model.compile``. A saved model contains the optimizer and its rule; a program that imports this module can load it.

    Args:
        optimizer: an optimizer, its name (``"adam"``) or its configuration. An optimizer is changed in place: its class
            becomes a subclass of its own class. A step that was compiled before is compiled again, and clips.
        rule: of any dialect, except one that sums over examples; or groups with such rules, which select by the paths of the
            variables (``"*/bias"``). A limit is a number, or a :class:`gradclip.Adaptive`: the
            optimizer keeps its state in variables, which are saved, and the ``Adaptive`` itself does not change.
            ``optimizer.clip_limit`` is the limit of the next step. A rule may skip steps: see :func:`gradclip.clipped`.
        record: whether the optimizer keeps the norm and the coefficient of its last step, in two variables that are saved with
            it. Then ``optimizer.last`` is a :class:`gradclip.ClipResult` with them; for a rule with a norm for each gradient
            they are vectors in the order of the variables. Otherwise ``last`` is None.
        monitor: a :class:`gradclip.Monitor`. The optimizer counts in its own variables, on its device, and the monitor
            reads them for a report; :class:`MonitorLog` logs it at the end of each epoch. It is not saved with the model: save
            ``monitor.state_dict()``.
        patience: after more than so many skipped steps in a row, an eager step raises; ``math.inf`` for never. A compiled step
            raises nothing: ``optimizer.clip_skips`` has the counts.

    Returns:
        The optimizer.

    Raises:
        ValueError: if the optimizer clips already; for a rule whose result has another shape than the gradient; for an
            optimizer that only passes gradients to others (``LossScaleOptimizer``): clip in the inner one; and with
            ``record`` for a rule without a norm, or with several for one gradient.
        TypeError: if ``rule`` is not a rule, and for a limit that is a tensor; when the model is saved, for a schedule, for
            a limit that is not from :mod:`gradclip.limits` and for a group that selects by a function.

    Example:
        >>> import keras, gradclip.backends.keras
        >>> from gradclip.dialects import torch
        >>> adam = gradclip.backends.keras.clipped(keras.optimizers.Adam(1e-3), torch.clip_grad_norm(max_norm=1.0))
        >>> isinstance(adam, keras.optimizers.Adam), adam.clip_rule.name
        (True, 'torch.clip_grad_norm')
    """
    if isinstance(optimizer, Rule):
        raise not_an_optimizer(optimizer)
    check_groups(rule, keeps_shape=True)
    check_patience(patience)
    made = keras.optimizers.get(optimizer)
    if made is None:
        raise ArgumentTypeError("An optimizer is needed.", "optimizer=None", 'name one: "adam".')
    return clipped_by(made, Step(rule, monitor), patience, record=record)


def clipped_by(optimizer: Any, step: Step, patience: float, *, record: bool = False) -> Any:
    """:func:`gradclip.clipped` for an optimizer of Keras, whose class becomes a subclass of its own."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise not_an_optimizer(optimizer)
    check_rules(step, record)
    check_optimizer(optimizer, step)
    trace_again(optimizer)
    kind: type = type(optimizer)
    optimizer.__class__ = _subclass(kind, step.skips)
    # not by setattr: Keras would track their contents as its own variables and lists
    parts = {"_state": State(step), "_patience": patience, "_record": Record() if record else None}
    optimizer.__dict__.update(parts)
    if optimizer.built:
        optimizer._build_carried()
    return optimizer


class Clipping(keras.optimizers.Optimizer):
    """The clipping part of an optimizer; its class inherits from this class and from its former class."""

    unclipped: type  #: the class that the optimizer had
    _clipped_variables: list[Any] | None = None  # the variables of the gradients being clipped
    _record: Record | None = None
    _state: State
    _patience: float = 10

    @property
    def clip_rule(self) -> Rules:
        """The rule or the groups."""
        rule: Rules = self._state.step.rule
        return rule

    @clip_rule.setter
    def clip_rule(self, rule: Any) -> None:
        hint = "make another optimizer, and compile the model with gradclip.clipped(optimizer, rule)."
        raise ArgumentError("The rule of a clipped optimizer cannot be exchanged.", f"clip_rule={shown(rule)}", hint)

    @property
    def last(self) -> ClipResult[None, Any] | None:
        """The norm and the coefficient of the last step, if recorded; None before the optimizer is built."""
        if self._record is None or not self._record.variables:
            return None
        return ClipResult(None, *map(read, self._record.variables))

    @property
    def clip_limit(self) -> Any:
        """The limit of the next step: a number, or a tensor if it follows the run; for groups a list."""
        step = self._state.step

        def of(limit: Any) -> Any:
            return self._state.limit(step.adaptives.index(limit)) if isinstance(limit, Adaptive) else limit

        limits = [of(group.rule.limit) for group in step.groups]
        return limits if isinstance(self.clip_rule, (list, tuple)) else limits[0]

    @property
    def clip_skips(self) -> dict[str, Any]:
        """The number of skipped steps, in all (``"skipped"``) and since the last other step (``"in_a_row"``)."""
        counts = (self._state.tree or {}).get("skips", dict.fromkeys(("skipped", "in_a_row"), 0))
        return {name: read(count) for name, count in counts.items()}

    def build(self, variables: Any) -> None:
        super().build(variables)
        self._build_carried()

    def _build_carried(self) -> None:
        for part in (self._record, self._state):
            if part is not None:
                part.build(self, _names(self._trainable_variables))

    def _clipped(self, grads: list[Any]) -> list[Any]:
        """Clip the gradients of some of the variables; the others count as missing, so that places and names stay."""
        step, variables = self._state.step, self._trainable_variables
        if not self.built:
            return list(self._state.update(grads, None).grads)
        places = [self._get_variable_index(v) for v in self._clipped_variables or variables]
        given = dict(zip(places, grads, strict=True))
        every: Any = [given.get(i) for i in range(len(variables))]
        params: Any = None
        if any(group.rule.relative_to is not None for group in step.groups):
            params = [keras.ops.convert_to_tensor(v) if i in given else None for i, v in enumerate(variables)]
        if step.needs_names:
            names = _names(variables)
            every = dict(zip(names, every, strict=True))
            params = None if params is None else dict(zip(names, params, strict=True))
        result = self._state.update(every, params)
        if self._record is not None:
            self._record.write(result)
        found: Any = result.grads
        keys = list(every) if isinstance(every, dict) else range(len(every))  # JAX sorts the keys of a dict
        return [found[keys[i]] for i in places]

    # ---- saving ----------------------------------------------------------------------------------------------------------

    def save_own_variables(self, store: Any) -> None:
        """Save the variables, except the monitor's."""
        for i, variable in enumerate(self._saved()):
            store[str(i)] = variable.numpy() if hasattr(variable, "numpy") else keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        """Load the variables, with or without a monitor."""
        whole = self._variables
        self.__dict__["_variables"] = self._saved()
        try:
            super().load_own_variables(store)
        finally:
            self.__dict__["_variables"] = whole

    def _saved(self) -> list[Any]:
        own = set(map(id, self._state.counted))
        return [variable for variable in self.variables if id(variable) not in own]

    def __reduce__(self) -> tuple[Any, ...]:
        # Keras gives a method of the class, and pickle finds no class that a function has made
        function, *rest = super().__reduce__()
        return getattr(Clipping, function.__name__), *rest

    # ---- the clip --------------------------------------------------------------------------------------------------------

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
        check_alone(self)  # clipnorm can be assigned to at any time
        if not hasattr(super(), "_all_reduce_sum_gradients") or not has_strategy():
            return self._clipped(list(grads))
        # under tf.distribute Keras clips each replica's gradients and adds up the results, which does not clip their sum
        grads = [g for g, _ in super()._all_reduce_sum_gradients([(g, None) for g in grads])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GradclipWarning)  # they are summed now, even if the test for it cannot tell
            return self._clipped(grads)

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars  # with more than one replica they were summed before the clip

    def _backend_reset_gradient_accumulators(self) -> None:
        if keras.backend.backend() != "torch":
            super()._backend_reset_gradient_accumulators()
            return
        for variable in self._accumulated_gradients:
            if variable is not None:
                variable.assign(keras.ops.zeros_like(variable))  # Keras multiplies by 0, and a NaN stays

    def get_config(self) -> dict[str, Any]:
        """The configuration of the optimizer without the clip, plus the parts that :meth:`from_config` needs."""
        config: dict[str, Any] = super().get_config()
        saved = {"optimizer": name_of(self.unclipped), "rule": saved_rules(self.clip_rule), "record": self._record is not None}
        return {**config, "clipped": {**saved, "patience": saved_number(self._patience)}}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
        """The same clipped optimizer again, whichever class of clipped optimizers this is called on."""
        config = dict(config)
        clips = config.pop("clipped")
        saved = {**clips["optimizer"], "config": config}
        optimizer = keras.saving.deserialize_keras_object(saved, custom_objects=custom_objects)
        options = {"record": clips.get("record", False), "patience": float(clips.get("patience", 10))}
        return clipped(optimizer, loaded_rules(clips["rule"]), **options)


def _names(variables: list[Any]) -> list[str]:
    """The path of each variable; a second one with the same path gets a number."""
    names: list[str] = []
    for variable in variables:
        name = str(getattr(variable, "path", variable.name))
        names.append(f"{name}_{names.count(name)}" if name in names else name)
    return names


@functools.cache
def _subclass(base: type, skips: bool) -> type:
    namespace = {"__module__": __name__, "__doc__": base.__doc__, "unclipped": base}
    made = type(f"Clipped{base.__name__}", (*((Skipping,) if skips else ()), Clipping, base), namespace)
    # one name for all: a program that loads a model knows Clipping, and not yet its subclasses
    return _registered(made)


def _registered(cls: type) -> type:
    register = keras.saving.register_keras_serializable(package="gradclip", name="Clipped")
    result: type = register(cls)
    return result


_registered(Clipping)
