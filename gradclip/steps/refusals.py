"""What a clip in an optimizer refuses: something else in the place of the optimizer, a second clip, too many skipped steps."""

from __future__ import annotations

from typing import Any

from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.groups import Group
from gradclip.core.rule import Rule

__all__ = ["cannot_skip", "check_patience", "clips_already", "not_an_optimizer", "too_many"]


def clips_already(received: str, hint: str = "clip it once, by groups if there are several rules.") -> ArgumentError:
    """The error for an optimizer that has a clip."""
    return ArgumentError("This optimizer clips already.", received, hint)


def not_an_optimizer(given: object) -> ArgumentTypeError:
    """The error for something else in the place of an optimizer, with the line to write."""
    received = f"optimizer={shown(given)}"
    first = given[0] if isinstance(given, (list, tuple)) and given else given
    if isinstance(first, (Rule, Group)):
        received = f"optimizer={first}" if isinstance(first, Rule) else "optimizer=a gradclip.Group"
        return ArgumentTypeError("The optimizer comes first.", received, "gradclip.clipped(optimizer, rule).")
    if isinstance(given, str):
        what, hint = "A name is not an optimizer.", f"gradclip.clipped(keras.optimizers.get({given!r}), rule)."
    elif isinstance(given, type) or (callable(given) and not hasattr(given, "parameters")):
        what, name = "This is not an optimizer: it makes one.", getattr(given, "__name__", type(given).__name__)
        hint = f"call it: gradclip.clipped({name}(...), rule)."
    else:
        what = "An optimizer of PyTorch, Keras, Paddle or optax is needed."
        hint = "gradclip.clipped(torch.optim.AdamW(model.parameters()), rule); gradclip.clip clips gradients."
    return ArgumentTypeError(what, received, hint)


def check_patience(patience: object) -> None:
    """Refuse anything but a number of steps."""
    if not isinstance(patience, (int, float)) or isinstance(patience, bool) or not patience >= 0:
        raise ArgumentError("patience must be a number from 0 on.", f"patience={shown(patience)}")


def too_many(patience: float, rule: Any, norm: Any) -> ArgumentError:
    """The error for more skipped steps in a row than the patience of a slot."""
    what, received = f"More than {patience:g} steps in a row were skipped.", f"rule={rule}"
    hint = "patience=math.inf never stops; a larger skip_above skips fewer."
    return ArgumentError(what, received if norm is None else f"norm={norm}, {received}", hint)


_IN_LOOP = "skip in your loop: result = gradclip.clip_(grads, rule), and no step if result.skip."


def cannot_skip(rule: Rule, what: str, hint: str = _IN_LOOP) -> ArgumentError:
    """The error for a rule that skips steps, where no step can be skipped."""
    received = f"rule={rule}, skip_above={rule.skip_above!r}, if_nonfinite={rule.if_nonfinite!r}"
    return ArgumentError(what, received, hint)
