"""Keras 3 on TensorFlow, PyTorch or JAX: any of its optimizers, clipping by any rule inside ``model.fit``.

There is no :class:`gradclip.Backend` here. Keras has no tensors of its own: what its optimizers clip are those of the framework
that it runs on, and that framework's backend clips them. ``docs/keras.md`` says why it is done at this place.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import keras

from gradclip.clip import clip
from gradclip.errors import ArgumentError, ArgumentTypeError, GradclipError, GradclipWarning
from gradclip.floors import check_version
from gradclip.limits import Adaptive, numbers, published
from gradclip.limits.arithmetic import spread
from gradclip.mistakes import check_rule
from gradclip.monitor.pure import BLANK, observed
from gradclip.result import ClipResult
from gradclip.rule import Rule, Scope

__all__ = ["MonitorLog", "clipped"]

check_version("keras", keras.__version__)

_OWN_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
_HOOKS = ("_backend_apply_gradients", "_clip_gradients")  # what Keras calls, and Clipping overrides
_NUMBERS = ("limit", "lower", "upper", "order")  # the fields of a rule that can be infinite


def clipped(optimizer: Any, rule: Rule, *, record: bool = False, monitor: Any = None) -> Any:
    """Make a Keras optimizer clip by a rule, at the place where its own ``clipnorm=`` would.

    That is after the gradients have been unscaled and accumulated, before weight decay and the update. Hand the result to
    ``model.compile``; it is saved and loaded with the model, rule included, by any program that imports this module.

    Args:
        optimizer: an optimizer, its name (``"adam"``) or its configuration. An optimizer is changed in place and stays what it
            was otherwise, with its class a subclass of what it was; compile the model after, not before.
        rule: of any dialect but one that sums over examples. Its limit is a number, or a :class:`gradclip.Adaptive`: the
            optimizer carries its state in variables, which are saved, and the ``Adaptive`` itself stays as it is.
            ``optimizer.clip_limit`` is the limit of the next step.
        record: whether the optimizer keeps the norm and the coefficient of its last step, in two variables that are saved with
            it. ``optimizer.last`` is then a :class:`gradclip.ClipResult` with them, for a rule with a norm for each gradient
            vectors in the order of the variables. Without, ``last`` is None.
        monitor: a :class:`gradclip.Monitor`. The optimizer counts in variables of its own, on its device, which the monitor
            reads when it is asked; :class:`MonitorLog` logs it at the end of each epoch. It is not saved with the model: save
            ``monitor.state_dict()``.

    Returns:
        The optimizer.

    Raises:
        ValueError: if the optimizer clips already; for a rule whose result has another shape than the gradient; for an
            optimizer that only hands gradients on to others (``LossScaleOptimizer``), which are the ones to clip by; and with
            ``record`` for a rule that has no norm, or several for one gradient.
        TypeError: if ``rule`` is none, and for a limit that is a tensor; when the model is saved, for a limit that is not of
            :mod:`gradclip.limits`, or a schedule.

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
        made._record = _Record()
        if made.built:
            made._record.build(made)
    if isinstance(rule.limit, Adaptive):
        made._limit = _FollowingLimit(rule.limit)
        if made.built:
            made._limit.build(made)
    if monitor is not None:
        if made.built:
            what = "A monitor counts in variables that an optimizer makes when it is built."
            raise ArgumentError(what, "an optimizer that has been built", "make another optimizer.")
        made.__dict__["_monitor"] = monitor  # not by setattr: no part of the optimizer's state
    return made


class _Record:
    """Two variables of an optimizer, with the norm and the coefficient of its last step."""

    variables: tuple[Any, ...] = ()

    def build(self, optimizer: Any) -> None:
        shape = () if optimizer.clip_rule.is_total else (len(optimizer._trainable_variables),)
        if not self.variables:
            of = {"shape": shape, "dtype": "float32", "aggregation": "only_first_replica"}
            norm = optimizer.add_variable(initializer="zeros", name="clip_norm", **of)
            self.variables = norm, optimizer.add_variable(initializer="ones", name="clip_coefficient", **of)

    def write(self, optimizer: Any, result: ClipResult) -> None:
        for variable, found in zip(self.variables, (result.norm, result.coefficient), strict=True):
            if isinstance(found, list):
                variables = optimizer._clipped_variables or optimizer._trainable_variables
                places = map(optimizer._get_variable_index, variables)
                new = dict(zip(places, found, strict=True))
                found = keras.ops.stack([keras.ops.cast(new.get(i, variable[i]), "float32") for i in range(variable.shape[0])])
            variable.assign(keras.ops.cast(found, "float32"))


class _FollowingLimit:
    """The state of a limit that follows the run, in variables of an optimizer."""

    def __init__(self, adaptive: Adaptive) -> None:
        self.adaptive = adaptive
        self.variables: dict[str, Any] = {}

    def build(self, optimizer: Any) -> None:
        if self.variables:
            return
        each = len(optimizer._trainable_variables) if self.adaptive.is_each else None
        for name, value in spread(numbers(self.adaptive.state), each).items():
            options = {"dtype": "float32", "aggregation": "only_first_replica", "name": f"limit_{name}"}
            shape = (len(value),) if isinstance(value, list) else ()
            self.variables[name] = optimizer.add_variable(shape, _beginning(value), **options)

    def state(self) -> dict[str, Any]:
        return {name: keras.ops.convert_to_tensor(variable) for name, variable in self.variables.items()}

    def write(self, carried: Adaptive) -> None:
        for name, variable in self.variables.items():
            variable.assign(carried.state[name])


def _beginning(value: Any) -> Callable[..., Any]:
    """An initializer."""
    return lambda shape, dtype: keras.ops.convert_to_tensor(value, dtype)


class Clipping(keras.optimizers.Optimizer):
    """What a clipped optimizer does differently; its class inherits from this and from the class that it had."""

    clip_rule: Rule
    unclipped: type  #: the class that the optimizer had
    _clipped_variables: list[Any] | None = None  # those of the gradients that are being clipped
    _record: _Record | None = None
    _limit: _FollowingLimit | None = None
    _monitor: Any = None
    _counters: dict[str, Any] | None = None  # the variables of the monitor

    @property
    def last(self) -> ClipResult | None:
        """The norm and the coefficient of the last step, where they are recorded; None before the optimizer is built."""
        if self._record is None or not self._record.variables:
            return None
        # copies: on TensorFlow a variable counts as a tensor, and would change with the next step
        return ClipResult(None, *(keras.ops.copy(keras.ops.convert_to_tensor(x)) for x in self._record.variables))

    @property
    def clip_limit(self) -> Any:
        """The limit of the next step: a number, or of one that follows the run a tensor."""
        if self._limit is None:
            return self.clip_rule.limit
        state = self._limit.state() if self._limit.variables else self._limit.adaptive.state
        return self._limit.adaptive.rule_of.limit(state)

    def build(self, variables: Any) -> None:
        super().build(variables)
        for part in (self._record, self._limit):
            if part is not None:
                part.build(self)
        if self._monitor is not None and self._counters is None:
            counters = self.__dict__["_counters"] = _counters(self)
            self._monitor.attach(functools.partial(_taken, self._monitor, counters))

    def _clipped(self, grads: list[Any], params: Any) -> list[Any]:
        rule = self.clip_rule
        if self._limit is None:
            result = clip(grads, rule, params=params)
        else:
            carried = self._limit.adaptive.carrying(self._limit.state())
            result = clip(grads, dataclasses.replace(rule, limit=carried), params=params)
            self._limit.write(carried)
        if self._record is not None:
            self._record.write(self, result)
        if self._counters is not None:
            state = self._monitor.init(like=next(x for x in result.grads if x is not None))
            section = {name: keras.ops.convert_to_tensor(variable) for name, variable in self._counters.items()}
            (after,) = observed(state | {"sections": [section]}, result)["sections"]
            for name, variable in self._counters.items():
                variable.assign(after[name])
        return list(result.grads)

    def save_own_variables(self, store: Any) -> None:
        """Save what the optimizer without a monitor has."""
        for i, variable in enumerate(self._saved()):
            store[str(i)] = variable.numpy() if hasattr(variable, "numpy") else keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        """Load them, whether there is a monitor or not."""
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
        own = {id(variable) for variable in (self._counters or {}).values()}
        return [variable for variable in self.variables if id(variable) not in own]

    def _filter_empty_gradients(self, grads: list[Any], variables: list[Any]) -> Any:
        # Keras 3.4 clips the gradients that remain here, before it calls the method below
        left = super()._filter_empty_gradients(grads, variables)
        self.__dict__["_clipped_variables"] = list(left[1])
        return left

    def _backend_apply_gradients(self, grads: list[Any], trainable_variables: list[Any]) -> None:
        # for _clip_gradients, which is not told; and not by setattr, which would take them for variables of the optimizer
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
        # under tf.distribute Keras clips each replica's gradients and adds up what is left, which is no clip of their sum
        grads = [g for g, _ in super()._all_reduce_sum_gradients([(g, None) for g in grads])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GradclipWarning)  # where that is not to be seen they are summed all the same
            return self._clipped(grads, params)

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars  # summed before they were clipped, if there is more than one replica

    def get_config(self) -> dict[str, Any]:
        """The configuration of the optimizer without the clip, and what :meth:`from_config` needs besides."""
        config: dict[str, Any] = super().get_config()
        saved = {"optimizer": _name_of(self.unclipped), "rule": _saved(self.clip_rule), "record": self._record is not None}
        return {**config, "clipped": saved}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
        """The same clipped optimizer again, whichever class of clipped optimizers this is called on."""
        config = dict(config)
        clips = config.pop("clipped")
        saved = {**clips["optimizer"], "config": config}
        optimizer = keras.saving.deserialize_keras_object(saved, custom_objects=custom_objects)
        return clipped(optimizer, _loaded(clips["rule"]), record=clips.get("record", False))


class MonitorLog(keras.callbacks.Callback):
    """Logs what a monitor has seen at the end of each epoch: ``fit(..., callbacks=[MonitorLog(monitor)])``.

    The names are those of :meth:`gradclip.Monitor.report`, after ``clip/``; the history has them too. The numbers are those of
    the training so far.
    """

    def __init__(self, monitor: Any) -> None:
        super().__init__()
        self.monitor = monitor

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Add the report to the logs of the epoch."""
        if logs is not None:
            logs.update({f"clip/{name}": value for name, value in self.monitor.report().items()})


def _counters(optimizer: Any) -> dict[str, Any]:
    """The variables of a monitor, by their names in its state."""
    made = {}
    for name, (length, dtype, value) in BLANK.items():
        options = {"dtype": dtype, "aggregation": "only_first_replica", "name": f"monitor_{name}"}
        initializer = keras.initializers.Constant(value)
        made[name] = optimizer.add_variable((length,) if length else (), initializer, **options)
    return made


def _taken(monitor: Any, counters: dict[str, Any]) -> dict[str, Any]:
    """The state that is in the variables, which forget it."""
    first: dict[str, Any] = monitor.init(like=keras.ops.zeros(()))
    section = {name: keras.ops.copy(keras.ops.convert_to_tensor(variable)) for name, variable in counters.items()}
    for name, variable in counters.items():
        variable.assign(first["sections"][0][name])
    return first | {"sections": [section]}


def _has_strategy() -> bool:
    """Whether Keras, on TensorFlow, trains under a strategy: without one there is one replica, and nothing to sum."""
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
        what = f"A {type(optimizer).__name__} hands its gradients on to other optimizers."
        raise ArgumentError(what, f"optimizer={type(optimizer).__name__}", "clip by the optimizers inside of it.")
    if isinstance(optimizer, Clipping):
        raise ArgumentError("This optimizer clips by a rule already.", f"rule={optimizer.clip_rule}")
    _check_alone(optimizer)
    missing = [hook for hook in _HOOKS if not hasattr(optimizer, hook)]
    if missing:
        what = "This version of Keras clips in a way that gradclip does not know."
        raise GradclipError(
            what, f"keras {keras.__version__} without {', '.join(missing)}", "use a version that the tests ran on."
        )


def _check_alone(optimizer: Any) -> None:
    """Refuse two clips at once, as Keras does."""
    own = {name: getattr(optimizer, name) for name in _OWN_CLIPS}
    if any(value is not None for value in own.values()):
        what = "Only one of `clipnorm`, `clipvalue`, `global_clipnorm` and a rule can be set."
        raise ArgumentError(what, ", ".join(f"{name}={value}" for name, value in own.items()))


def _name_of(cls: type) -> dict[str, Any]:
    """Where Keras finds this class when it loads a model, on whichever framework it runs then."""
    if cls.__module__.startswith("keras.") and hasattr(keras.optimizers, cls.__name__):
        return {"module": "keras.optimizers", "class_name": cls.__name__, "registered_name": None}
    return {
        "module": cls.__module__,
        "class_name": cls.__name__,
        "registered_name": keras.saving.get_registered_name(cls),
    }


def _saved(rule: Rule) -> dict[str, Any]:
    """The fields that differ from their defaults, as JSON has them: no infinity, no tuple, no enumeration."""
    fields = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
    defaults = {field.name: field.default for field in dataclasses.fields(rule)}
    saved = {name: value for name, value in fields.items() if value != defaults[name]}
    saved["scope"] = rule.scope.name
    if rule.axes is not None:
        saved["axes"] = list(rule.axes)
    if isinstance(rule.limit, Adaptive):
        saved["limit"] = _saved_limit(rule.limit.rule_of)
    return saved | {name: str(saved[name]) for name in _NUMBERS if name in saved and _is_infinite(saved[name])}


def _loaded(saved: dict[str, Any]) -> Rule:
    follows = isinstance(saved.get("limit"), dict)
    fields = saved | {name: float(saved[name]) for name in _NUMBERS if name in saved and not (follows and name == "limit")}
    if follows:
        fields["limit"] = Adaptive(_loaded_limit(saved["limit"]))
    fields["scope"] = Scope[saved["scope"]]
    if "axes" in saved:
        fields["axes"] = tuple(saved["axes"])
    return Rule(**fields)


def _is_infinite(x: Any) -> bool:
    return isinstance(x, float) and not math.isfinite(x)


def _saved_limit(limit: Any) -> dict[str, Any]:
    """The class and the fields of one of gradclip's own limits."""
    name = type(limit).__name__
    if getattr(published, name, None) is not type(limit) or isinstance(limit, published.Schedule):
        what = "Only gradclip's own limits are saved with a model, and no function of the step."
        raise ArgumentTypeError(what, f"limit={limit!r}", "save the weights alone: model.save_weights(...).")
    return {"class": name, "fields": {key: str(x) if _is_infinite(x) else x for key, x in vars(limit).items()}}


def _loaded_limit(saved: dict[str, Any]) -> Any:
    limit = object.__new__(getattr(published, saved["class"]))
    vars(limit).update({key: float(x) if isinstance(x, str) else x for key, x in saved["fields"].items()})
    return limit
