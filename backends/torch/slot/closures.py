"""The closure that a caller passes to ``optimizer.step``: it clips what it makes, or is called before the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradclip.core.errors import ArgumentError
from gradclip.core.groups import Rules

__all__ = ["called", "closure_of", "exchanged", "with_clips_inside"]

_SEVERAL = "A step that calls its closure several times cannot be skipped."


class _ClippedClosure:
    """A closure for ``step`` that clips the gradients that it has just made."""

    def __init__(self, closure: Callable[[], Any], clip: Callable[[torch.optim.Optimizer], None], optimizer: Any) -> None:
        self.closure, self.clip, self.optimizer = closure, clip, optimizer

    def __call__(self) -> Any:
        loss = self.closure()
        self.clip(self.optimizer)
        return loss


def closure_of(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The closure passed to ``step``, or None."""
    return next((x for x in (*args[1:], *kwargs.values()) if callable(x)), None)


def with_clips_inside(
    clip: Callable[[torch.optim.Optimizer], None], optimizer: torch.optim.Optimizer, args: Any, kwargs: Any
) -> tuple[Any, Any] | None:
    """The arguments of ``step`` with a clipping closure; None if it clips already (a subclass's step calls its base's)."""
    closure = closure_of(args, kwargs)
    if isinstance(closure, _ClippedClosure) and closure.clip == clip:
        return None
    return exchanged(args, kwargs, closure, _ClippedClosure(closure, clip, optimizer))


def exchanged(args: Any, kwargs: Any, closure: Any, other: Any) -> tuple[Any, Any]:
    """The arguments of ``step`` with another closure."""
    return tuple(other if x is closure else x for x in args), {k: other if x is closure else x for k, x in kwargs.items()}


class _Called:
    """A closure that has been called: it returns its loss, once."""

    def __init__(self, loss: Any) -> None:
        self.loss, self.calls = loss, 0

    def __call__(self) -> Any:
        self.calls += 1
        if self.calls > 1:
            raise ArgumentError(_SEVERAL, "a closure, called twice in one step", "call backward() and then step().")
        return self.loss


def called(optimizer: torch.optim.Optimizer, closure: Any, rule: Rules) -> _Called:
    """Call a closure before the step, to know its gradients' norm; one that was called stays."""
    if isinstance(closure, _Called):
        return closure
    if isinstance(optimizer, torch.optim.LBFGS):
        hint = "skip in the closure, or leave skip_above and if_nonfinite out."
        raise ArgumentError(_SEVERAL, f"rule={rule} and LBFGS", hint)
    with torch.enable_grad():
        return _Called(closure())
