"""A newcomer's first steps with Keras print the text of ``tests/docs/first_steps/keras.txt``."""

from __future__ import annotations

from docs.first_steps.steps import PROGRAMS
from docs.first_steps.transcript import path_of, transcript


def test_first_steps() -> None:
    shown = transcript(*PROGRAMS["keras"])
    # Keras has a separate Adam for PyTorch
    shown = shown.replace("keras.src.backend.torch.optimizers.torch_adam.Adam", "keras.src.optimizers.adam.Adam")
    assert shown == path_of("keras").read_text("utf-8")
