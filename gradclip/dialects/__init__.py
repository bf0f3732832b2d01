"""What a clip means to each framework: one file a framework, one function a native, each returning a :class:`gradclip.Rule`."""

from gradclip.dialects import keras, optax, paddle, tensorflow, torch

__all__ = ["keras", "optax", "paddle", "tensorflow", "torch"]
