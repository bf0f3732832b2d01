"""The warnings of a clip, at the line of the caller."""

from __future__ import annotations

import sys
import warnings

from gradclip.core.errors import GradclipWarning, message
from gradclip.core.gradients import Gradients
from gradclip.core.tracing import constant

__all__ = ["warn", "warn_of_nothing"]


@constant
def warn(text: str) -> None:
    """Warn at the caller's line; torch.compile warns while it traces."""
    warnings.warn(text, GradclipWarning, stacklevel=_outside())


def warn_of_nothing(grads: Gradients) -> None:
    """Warn that nothing was clipped, which the caller probably does not expect."""
    if any(param is not None for param in grads.params):
        what = "None of the parameters has a gradient: nothing was clipped."
        hint = "clip after backward(), and before zero_grad()."
        received = f"{len(grads.params)} parameters"
        if grads.backend is not None and not any(map(grads.backend.containers.is_param, grads.params)):
            what = "None of these tensors has a gradient: nothing was clipped."
            received = f"{len(grads.params)} tensors that require no gradient"
            hint = "gradients themselves go to gradclip.clip_(grads, rule); this function takes parameters."
        elif grads.backend is not None:
            hint = grads.backend.distributed.held_elsewhere(grads.params) or hint
    elif grads.container.was_iterator:
        what, received = "The iterator is empty: nothing was clipped.", "an empty or exhausted iterator"
        hint = "an iterator can be used once; pass a list to use it again."
        if grads.container.native_warning:
            _warn_as_natively(grads.container.native_warning, received, hint)
            return
    elif grads.container.tree is None:
        what, received = "There is no gradient: nothing was clipped.", "grads=None"
        hint = "a parameter's gradient is None before backward(), and after zero_grad()."
    else:
        return
    warn(message(what, received, hint))


def _warn_as_natively(sentence: str, received: str, hint: str) -> None:
    """Warn in the native's words, which the tests of its users compare; the rest is a note, which a raised warning shows."""
    warning = GradclipWarning(sentence)
    warning.add_note(message("", received, hint).strip())
    warnings.warn(warning, stacklevel=_outside())


def _outside() -> int:
    """The stack level of the first frame that is not gradclip's own."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gradclip":
        level, frame = level + 1, frame.f_back
    return level
