"""What to do about errors that end a script, and that a clip or a scaler raised."""

from __future__ import annotations

__all__ = ["hint"]

#: words of an error -> what to do
_HINTS = {
    "unscale_() has already been called": (
        "call `scaler.unscale_(optimizer)` once between two `scaler.update()`, just before the clip: "
        "in the last of several accumulated passes only, and not where a trainer or a second clip does it too."
    ),
    "unscale_() is being called after step()": "call `scaler.unscale_(optimizer)`, the clip, then `scaler.step(optimizer)`.",
    "step() has already been called since the last update()": "call `scaler.update()` after each `scaler.step(optimizer)`.",
    "Attempting to unscale FP16 gradients": (
        "keep the parameters in float32 and run the forward pass under `torch.autocast`: a GradScaler is for such a model. "
        "With parameters in float16 (`model.half()`) there is no scaler that can clip; bfloat16 needs none."
    ),
    "No inf checks were recorded for this optimizer": (
        "the optimizer has no parameter with a gradient: give it the parameters of the model that is trained, "
        "and call `scaler.scale(loss).backward()` before `scaler.step(optimizer)`."
    ),
    "is non-finite, so it cannot be clipped": (
        "a gradient has an infinity or a NaN. Look for its cause in the forward pass. Under a GradScaler, leave "
        "error_if_nonfinite out: the scaler skips such a step."
    ),
    "No gradients provided for any variable": "the tape returned only None: compute the loss inside the tape.",
}


def hint(said: str) -> str:
    """What to do about an error; empty if that is not known.

    >>> hint("RuntimeError: unscale_() is being called after step().")
    'call `scaler.unscale_(optimizer)`, the clip, then `scaler.step(optimizer)`.'
    >>> hint("KeyError: 'x'")
    ''
    """
    return next((text for words, text in _HINTS.items() if words in said), "")
