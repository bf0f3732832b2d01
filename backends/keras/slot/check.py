"""What a clipped optimizer of Keras refuses."""

from __future__ import annotations

from typing import Any

import keras

from gradclip.backends.keras import versions
from gradclip.core.errors import ArgumentError, ArgumentTypeError, GradclipError, shown
from gradclip.core.rule import GLOBAL, TENSOR, Rule
from gradclip.limits import Adaptive
from gradclip.steps.refusals import clips_already
from gradclip.steps.step import Step

__all__ = ["check_alone", "check_optimizer", "check_replicas", "check_rules", "has_strategy"]

_OWN_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
#: the fields of a rule that a model saves, and their types
_SAVED = {
    "limit": (int, float, Adaptive),
    "lower": (int, float),
    "upper": (int, float),
    "skip_above": (int, float, Adaptive, type(None)),
}
# Keras calls these methods, and Clipping overrides them
_HOOKS = ("_backend_apply_gradients", "_clip_gradients")
_PARTS = ("_apply_weight_decay", "_backend_update_step", "_update_model_variables_moving_average")  # of a step to skip


def has_strategy() -> bool:
    """Whether Keras, on TensorFlow, trains under a strategy; without one there is one replica and nothing to sum."""
    import tensorflow as tf

    return bool(tf.distribute.has_strategy())


def check_rules(step: Step, record: bool) -> None:
    if record and (not isinstance(step.rule, Rule) or step.rule.scope not in (GLOBAL, TENSOR)):
        what = "record=True is for a rule with one norm, or one for each gradient."
        raise ArgumentError(what, f"rule={shown(step.rule)}", "leave record=True out.")
    for group in step.groups:
        for name, kinds in _SAVED.items():
            value = getattr(group.rule, name)
            if not isinstance(value, kinds):
                name = group.rule.limit_name if name == "limit" else name
                raise ArgumentTypeError("The limit must be a number, to be saved with the model.", f"{name}={value!r}")


def check_replicas(step: Step) -> None:
    """Refuse to skip in one of several replicas: TensorFlow has no branch there that updates variables."""
    if keras.backend.backend() == "tensorflow" and has_strategy():
        import tensorflow as tf

        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            what = "A step cannot be skipped under tf.distribute with several replicas."
            hint = 'dataclasses.replace(rule, skip_above=None, if_nonfinite="zero") steps with zeros for a NaN.'
            raise ArgumentError(what, f"rule={shown(step.rule)}", hint)


def check_optimizer(optimizer: Any, step: Step) -> None:
    outer = tuple(filter(None, (getattr(keras.optimizers, name, None) for name in ("LossScaleOptimizer", "MultiOptimizer"))))
    if isinstance(optimizer, outer):
        what = f"A {type(optimizer).__name__} passes its gradients to other optimizers."
        raise ArgumentError(what, f"optimizer={type(optimizer).__name__}", "clip by the optimizers inside of it.")
    if hasattr(optimizer, "clip_rule"):
        raise clips_already(f"rule={shown(optimizer.clip_rule)}")
    check_alone(optimizer)
    if versions.CLIPS_EACH_BATCH and step.skips and optimizer.gradient_accumulation_steps:
        what = "This version of Keras clips each batch before it adds them up, so that no whole step can be skipped."
        received = f"keras {keras.__version__}, gradient_accumulation_steps={optimizer.gradient_accumulation_steps}"
        raise ArgumentError(what, received, 'install Keras 3.5 or newer, or clip by a rule with if_nonfinite="zero".')
    missing = [hook for hook in (*_HOOKS, *(_PARTS if step.skips else ())) if not hasattr(optimizer, hook)]
    if missing:
        what = "gradclip does not know how this version of Keras clips."
        raise GradclipError(
            what, f"keras {keras.__version__} without {', '.join(missing)}", "use a version that the tests ran on."
        )


def check_alone(optimizer: Any) -> None:
    """Refuse two clips at once, as Keras does."""
    if any(getattr(optimizer, name) is not None for name in _OWN_CLIPS):
        what = "Only one of `clipnorm`, `clipvalue`, `global_clipnorm` and a rule can be set."
        raise ArgumentError(what, ", ".join(f"{name}={getattr(optimizer, name)}" for name in _OWN_CLIPS))
