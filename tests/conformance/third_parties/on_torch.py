"""The clips of packages for PyTorch."""

from conformance.third_parties import functions_on_torch, steps_on_torch
from conformance.third_parties.clips import Clip

__all__ = ["CLIPS"]

CLIPS: tuple[Clip, ...] = functions_on_torch.CLIPS + steps_on_torch.CLIPS
