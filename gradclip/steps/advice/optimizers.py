"""Whether the length of an optimizer's step depends on the scale of the gradients: what a small limit does depends on that."""

from __future__ import annotations

import re

__all__ = ["is_scale_invariant", "name_of"]

#: They divide the gradient by a mean of its own size, or take its sign or direction; measured for each in the tests.
_INVARIANT = re.compile(
    r"ada(m|grad|delta|factor|belief|n\b)|rms_?prop|lion|r_?prop|adopt|amsgrad|fromage|ftrl|lamb(?!da)|lars|muon|novograd"
    r"|sign_?(sgd|um)|sm3|yogi",
    re.IGNORECASE,
)
_PROPORTIONAL = re.compile(r"sgd|momentum|gradient_?descent|nesterov", re.IGNORECASE)


def is_scale_invariant(name: str) -> bool | None:
    """Whether a step is about as long if all gradients are a hundredth; None if that is not known of the optimizer.

    Args:
        name: as its framework calls it, or several names in one text.

    >>> [is_scale_invariant(name) for name in ("AdamW", "optax.lion", "AdamW8bit", "SGD", "momentum", "MyOptimizer")]
    [True, True, True, False, False, None]
    """
    return True if _INVARIANT.search(name) else False if _PROPORTIONAL.search(name) else None


def name_of(optimizer: object) -> str:
    """The name of an optimizer, which may be given by its name."""
    return optimizer if isinstance(optimizer, str) else type(optimizer).__name__
